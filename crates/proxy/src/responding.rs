//! An answer, at once or later.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use crate::body::Body;
use crate::connection::{Answering, Asked};
use crate::exchange::Unanswered;

type Answered = Result<Response<Body>, Unanswered>;

/// What a request is answered with. It was counted when it was decided: a client that hung up with its request is counted too. Hyper moves it about with each request, so it is as small as a hit needs; all else is boxed.
pub(crate) struct Responding {
    /// Until it is answered.
    asked: Option<Asked>,
    answer: Answer,
}

enum Answer {
    Now(Option<Answered>),
    Later(Pin<Box<dyn Future<Output = Answered> + Send>>),
}

impl Responding {
    /// It is there.
    pub fn now(asked: Asked, answered: Answered) -> Self {
        Responding { asked: Some(asked), answer: Answer::Now(Some(answered)) }
    }

    /// It is still to be made.
    pub fn later(asked: Asked, answered: impl Future<Output = Answered> + Send + 'static) -> Self {
        Responding { asked: Some(asked), answer: Answer::Later(Box::pin(answered)) }
    }
}

impl Future for Responding {
    type Output = Result<Response<Answering>, Unanswered>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = match &mut self.answer {
            Answer::Now(answered) => answered.take(),
            Answer::Later(answered) => match answered.as_mut().poll(context) {
                Poll::Ready(answered) => Some(answered),
                Poll::Pending => return Poll::Pending,
            },
        };
        let (answered, asked) = answered.zip(self.asked.take()).expect("invariant: polled until it is ready");
        Poll::Ready(answered.map(|answer| asked.answered(answer)))
    }
}
