//! What the bench is made of.

pub(crate) mod fronts;
pub(crate) mod meter;
pub(crate) mod reference;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod tally;

use std::error::Error;

use meter::{Measured, Meter};
use server::Server;
use settings::{Case, Who};
use tally::Tally;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One case, once: fill, drain under measurement, check, clean up.
pub(crate) fn measure(server: &Server, meter: &mut Meter, case: Case, jobs: usize) -> Result<Measured> {
    match case.who {
        Who::Reference => reference::fill(server, jobs)?,
        Who::Blocking | Who::Async => fronts::fill(server, jobs)?,
    }
    meter.tidy_up(case.schema())?;
    let before = meter.read()?;
    let tally = Tally::new(jobs);
    match case.who {
        Who::Reference => reference::drain(server, case, &tally)?,
        Who::Blocking => fronts::drain_blocking(server, case, &tally)?,
        Who::Async => fronts::drain_async(server, case, &tally)?,
    }
    let times = tally.times()?;
    let after = meter.read()?;
    let done = match case.who {
        Who::Reference => meter.count("SELECT count(*) FROM throughput_reference.jobs WHERE status = 'done'")?,
        _ => {
            meter.count("SELECT count(*) FROM throughput_venturi.jobs WHERE status = 'completed' AND run_count = 1")?
        }
    };
    if done != jobs {
        return Err(format!("{done} jobs are done, not {jobs}: {case:?}").into());
    }
    meter.drop_schema(case.schema())?;
    Ok(Measured::new(case, jobs, times, &before, &after))
}
