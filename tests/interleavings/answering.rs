//! Questions whose answers come from another thread.

use shuttle::future::block_on;
use shuttle::thread::spawn;

use super::in_many_orders;
use crate::answer::question;
use crate::error::ErrorKind;

#[test]
fn a_thread_gets_its_answer() {
    in_many_orders(|| {
        let (answerer, answer) = question();
        let answering = spawn(move || answerer.answer(Ok(7)));
        assert_eq!(answer.wait().unwrap(), 7);
        answering.join().unwrap();
    });
}

#[test]
fn a_future_gets_its_answer() {
    in_many_orders(|| {
        let (answerer, answer) = question();
        let answering = spawn(move || answerer.answer(Ok(7)));
        assert_eq!(block_on(answer).unwrap(), 7);
        answering.join().unwrap();
    });
}

#[test]
fn a_question_that_is_thrown_away_is_answered() {
    in_many_orders(|| {
        let ((thrown, thread), (away, future)) = (question::<()>(), question::<()>());
        let throwing = spawn(move || drop((thrown, away)));
        assert_eq!(block_on(future).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(thread.wait().unwrap_err().kind(), ErrorKind::Unavailable);
        throwing.join().unwrap();
    });
}
