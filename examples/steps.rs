//! A job of several steps that waits between them: `DATABASE_URL=… cargo run --example steps --features blocking`.
//!
//! The carry says which step is next. A pause stores it and gives the slot back, so an order that waits for its parcel
//! costs nothing but its row; after a crash the job goes on with the step that it was at.

#![allow(clippy::print_stdout, reason = "a program of its own")]

use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::blocking::{Handler, Queue, Worker, migrate};
use venturi::{CancellationToken, Context, Database, Outcome, Task, TaskError};

#[derive(Serialize, Deserialize)]
struct FulfilOrder {
    order: u32,
}

#[derive(Default, Serialize, Deserialize)]
enum Step {
    #[default]
    Reserve,
    Charge,
    Ship {
        receipt: String,
    },
}

impl Task for FulfilOrder {
    const KIND: &'static str = "fulfil_order";
    type Carry = Step;
}

/// Ends the program when its order has been shipped.
struct App {
    shipped: CancellationToken,
}

impl Handler<App> for FulfilOrder {
    fn handle(&self, context: &mut Context<Step>, app: &App) -> Result<Outcome, TaskError> {
        let (run, order) = (context.run_count(), self.order);
        match context.carry() {
            Step::Reserve => {
                println!("run {run}: order {order} is reserved");
                *context.carry_mut() = Step::Charge;
                Ok(Outcome::pause_in(Duration::from_millis(200)))
            }
            Step::Charge => {
                // A card terminal that takes a key of ours charges once, however often it is asked.
                let receipt = format!("receipt for job {}", context.job_id());
                println!("run {run}: order {order} is charged");
                *context.carry_mut() = Step::Ship { receipt };
                Ok(Outcome::pause_in_with(Duration::from_millis(200), "waits for the parcel"))
            }
            Step::Ship { receipt } => {
                println!("run {run}: order {order} is shipped, with the {receipt}");
                app.shipped.cancel();
                Ok(Outcome::completed())
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    env_logger::init();
    let database = Database::from_env()?;
    migrate(&database)?;
    Queue::connect(&database)?.enqueue(FulfilOrder { order: 7 })?;
    let shipped = CancellationToken::new();
    let worker = Worker::builder(App { shipped: shipped.clone() }).database(database).register::<FulfilOrder>();
    let report = worker.build()?.run(shipped)?;
    println!("{} runs", report.settled);
    Ok(())
}
