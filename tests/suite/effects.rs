//! Handlers' own transactions: an effect in a table of the test's, and the job completed with it.

use std::sync::Arc;

use venturi::Context;

use super::lab::Lab;
use super::probe::{Finish, LONGEST, stored};

/// What each such handler does beside its job.
pub(crate) const TABLE: &str = "CREATE TABLE effect (job bigint NOT NULL)";
const EFFECT: &str = "INSERT INTO effect VALUES ($1)";

fn place(lab: &Lab) -> (&str, String) {
    let (url, schema) = lab.place.get().expect("handlers know where they are");
    (url, format!("SET search_path = \"{schema}\""))
}

#[cfg(feature = "blocking")]
pub(crate) fn on_thread<C>(context: &mut Context<C>, lab: &Arc<Lab>, finish: &Finish) -> String {
    use venturi::blocking::CompleteIn;
    let (url, search) = place(lab);
    let mut client = postgres::Client::connect(url, postgres::NoTls).expect("the server is there");
    client.batch_execute(&search).expect("a search path");
    let mut transaction = client.transaction().expect("a transaction");
    transaction.execute(EFFECT, &[&context.job_id().get()]).expect("an effect");
    let answer = context.complete_in(&mut transaction);
    let committed = answer.is_ok() && *finish != Finish::RollBack;
    if let Finish::CommitAfter(gate) = finish {
        lab.gate(gate).wait_timeout(LONGEST);
    }
    // Otherwise it is dropped, which rolls it back.
    if committed {
        transaction.commit().expect("a commit");
    }
    stored(answer)
}

#[cfg(not(feature = "blocking"))]
pub(crate) fn on_thread<C>(_context: &mut Context<C>, _lab: &Arc<Lab>, _finish: &Finish) -> String {
    panic!("a thread's transaction needs the blocking client");
}

#[cfg(feature = "async")]
pub(crate) async fn in_future<C: Send>(context: &mut Context<C>, lab: &Arc<Lab>, finish: &Finish) -> String {
    use venturi::r#async::CompleteIn;
    let (url, search) = place(lab);
    let mut client = sessions::connect(url.to_owned()).await;
    client.batch_execute(&search).await.expect("a search path");
    let transaction = client.transaction().await.expect("a transaction");
    transaction.execute(EFFECT, &[&context.job_id().get()]).await.expect("an effect");
    let answer = context.complete_in(&transaction).await;
    let committed = answer.is_ok() && *finish != Finish::RollBack;
    if let Finish::CommitAfter(gate) = finish {
        lab.gate(gate).cancelled().await;
    }
    // Otherwise it is dropped, which rolls it back.
    if committed {
        transaction.commit().await.expect("a commit");
    }
    stored(answer)
}

/// Clients for futures on any executor: their connections are kept by a runtime of their own.
#[cfg(feature = "async")]
pub(crate) mod sessions {
    use std::sync::OnceLock;

    use tokio::runtime::{Builder, Runtime};
    use tokio_postgres::{Client, NoTls};

    pub(crate) async fn connect(url: String) -> Client {
        static KEEPER: OnceLock<Runtime> = OnceLock::new();
        let keeper = KEEPER
            .get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));
        let connecting = keeper.spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("the server is there");
            tokio::spawn(connection);
            client
        });
        connecting.await.expect("a connection")
    }
}
