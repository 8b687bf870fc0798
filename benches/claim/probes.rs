//! The statements that look for work, as the engine sends them.

use std::time::SystemTime;

use postgres::types::ToSql;
use postgres::{Client, Statement};

use super::situations::{OWN, Situation};
use crate::support::Result;

/// How much deeper than it wants a claim looks at first.
const SPARE: i32 = 4;
/// Rows of one pass of recovery or promotion.
const PASS: i32 = 500;
const WORKER: &str = "here:1:bench";
/// Seconds: the default lease.
const LEASE: f64 = 900.0;
/// Seconds: a pass looks back to the previous one and ten seconds more.
const BOUNDED: Option<f64> = Some(40.0);
/// Seconds: until the next survey, by default.
const HORIZON: f64 = 30.0;
/// Seconds: but for one claim a second, they don't look for claims that ran out; what that one pays is `stale`.
const NOT_BACK: Option<f64> = Some(0.0);
/// Seconds: without bound, now and then.
const UNBOUNDED: Option<f64> = None;

/// One statement with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Probe {
    Claim {
        want: i32,
    },
    /// From the first living row of each kind on, as the engine claims while dead index entries make a full look slow.
    ClaimFrom {
        want: i32,
    },
    Stale {
        look_back: Option<f64>,
    },
    Promote {
        look_back: Option<f64>,
    },
    Survey,
}

impl Probe {
    pub(crate) const ALL: [Self; 9] = [
        Self::Claim { want: 1 },
        Self::Claim { want: 16 },
        Self::ClaimFrom { want: 1 },
        Self::ClaimFrom { want: 16 },
        Self::Survey,
        Self::Stale { look_back: BOUNDED },
        Self::Stale { look_back: UNBOUNDED },
        Self::Promote { look_back: BOUNDED },
        Self::Promote { look_back: UNBOUNDED },
    ];

    pub(crate) fn name(self) -> String {
        let all = |look_back| if look_back == UNBOUNDED { " all" } else { "" };
        match self {
            Self::Claim { want } => format!("claim {want}"),
            Self::ClaimFrom { want } => format!("claim_from {want}"),
            Self::Stale { look_back } => format!("stale{}", all(look_back)),
            Self::Promote { look_back } => format!("promote{}", all(look_back)),
            Self::Survey => "survey".to_owned(),
        }
    }

    /// The library's own text.
    fn text(self, schema: &str, kinds: usize) -> String {
        let text = match self {
            Self::Claim { want } if kinds > depth(want) => claim(KINDS_MANY, HEAD),
            Self::Claim { .. } => claim(KINDS, HEAD),
            Self::ClaimFrom { .. } => claim(KINDS, HEAD_FROM),
            Self::Stale { .. } => include_str!("../../src/sql/stale.sql").to_owned(),
            Self::Promote { .. } => include_str!("../../src/sql/promote.sql").to_owned(),
            Self::Survey => include_str!("../../src/sql/survey.sql").to_owned(),
        };
        text.replace("{schema}", schema)
    }

    /// In the order of the numbers in the text.
    fn params(self, kinds: &[String], marks: &[Mark]) -> Params {
        match self {
            Self::Claim { want } => claim_params(kinds, want),
            Self::ClaimFrom { want } => {
                // Three priorities a kind.
                let created_at: Vec<_> = marks.iter().flat_map(|mark| [mark.0; 3]).collect();
                let ids: Vec<i64> = marks.iter().flat_map(|mark| [mark.1; 3]).collect();
                let bounds: Params = vec![Box::new(created_at), Box::new(ids)];
                claim_params(kinds, want).into_iter().chain(bounds).collect()
            }
            Self::Stale { look_back } => vec![Box::new(look_back), Box::new(PASS), Box::new(WORKER)],
            Self::Promote { look_back } => vec![Box::new(kinds.to_vec()), Box::new(look_back), Box::new(PASS)],
            Self::Survey => vec![
                Box::new(kinds.to_vec()),
                Box::new(WORKER),
                Box::new(BOUNDED),
                Box::new(HORIZON),
                Box::new(kinds.to_vec()),
                Box::new(Vec::<i64>::new()),
            ],
        }
    }
}

const KINDS: &str = include_str!("../../src/sql/parts/kinds.sql");
const KINDS_MANY: &str = include_str!("../../src/sql/parts/kinds_many.sql");
const HEAD: &str = include_str!("../../src/sql/parts/head.sql");
const HEAD_FROM: &str = include_str!("../../src/sql/parts/head_from.sql");

/// A claim alone. The places are replaced with their indentation, for the text's own head names them too.
fn claim(kinds: &str, head: &str) -> String {
    let kinds = kinds.replace("    {kinds}", KINDS).replace("    {first}", &head.replace("{depth}", "1"));
    let head = head.replace("{depth}", "$6::int + $7::int");
    let text = include_str!("../../src/sql/claim.sql").replace("    {kinds}", &kinds).replace("    {head}", &head);
    ["{settled}", "{taken}", "{both}"].iter().fold(text, |text, place| text.replace(place, ""))
}

/// How many rows a claim looks at.
fn depth(want: i32) -> usize {
    usize::try_from(want + SPARE).unwrap_or(0)
}

type Params = Vec<Box<dyn ToSql + Sync>>;

fn claim_params(kinds: &[String], want: i32) -> Params {
    vec![
        Box::new(WORKER),
        Box::new(vec![LEASE; kinds.len()]),
        Box::new(kinds.to_vec()),
        Box::new(vec![i32::MAX; kinds.len()]),
        Box::new(0),
        Box::new(want),
        Box::new(SPARE),
        Box::new(NOT_BACK),
        Box::new(Vec::<i64>::new()),
    ]
}

/// Where the rows of a kind begin, or would begin: `created_at` and id.
type Mark = (SystemTime, i64);

const MARK: &str = "
SELECT coalesce(min(created_at), now()), coalesce(min(id), 0) FROM (
  SELECT created_at, id FROM {schema}.live
  WHERE state = 0 AND kind = $1 ORDER BY kind, priority, created_at, id LIMIT 1) first";

fn marks(client: &mut Client, kinds: &[String], schema: &str) -> Result<Vec<Mark>> {
    let mark = client.prepare(&MARK.replace("{schema}", schema))?;
    let of = |kind: &String| {
        let row = client.query_one(&mark, &[kind])?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    };
    kinds.iter().map(of).collect()
}

/// A probe, prepared for one situation.
pub(crate) struct Prepared {
    statement: Statement,
    params: Params,
    /// How many rows come back, if that is to be checked.
    rows: Option<usize>,
}

impl Prepared {
    pub(crate) fn new(client: &mut Client, probe: Probe, situation: &Situation) -> Result<Self> {
        let kinds: Vec<String> = (0..situation.kinds).map(kind).collect();
        let schema = situation.schema();
        let statement = client.prepare(&probe.text(&schema, kinds.len()))?;
        let rows = match probe {
            Probe::Claim { want } | Probe::ClaimFrom { want } => {
                Some(if situation.has_own { usize::try_from(want)? } else { 0 })
            }
            _ => None,
        };
        let marks = marks(client, &kinds, &schema)?;
        Ok(Self { statement, params: probe.params(&kinds, &marks), rows })
    }

    /// Runs it; the caller rolls back what it did.
    pub(crate) fn run(&self, client: &mut Client) -> Result<()> {
        let params: Vec<&(dyn ToSql + Sync)> = self.params.iter().map(AsRef::as_ref).collect();
        let rows = client.query(&self.statement, &params)?;
        match self.rows {
            Some(wanted) if wanted != rows.len() => Err(format!("{} rows, not {wanted}", rows.len()).into()),
            _ => Ok(()),
        }
    }
}

/// The kinds that a worker has registered; the first is the one with jobs.
pub(crate) fn kind(nth: usize) -> String {
    if nth == 0 { OWN.to_owned() } else { format!("{OWN}_{nth}") }
}
