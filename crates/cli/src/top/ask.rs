//! Asks the helper's HTTP, on a connection of its own each time: so it is found again when it was started again.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use verbena_client::{Error, Place, Result, connect};

use super::reading::Reading;

/// The longest answer that is read, in bytes: 256 members and every metric at its limit are less.
const LONGEST: usize = 4 << 20;

/// Where to ask.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The first that answers is taken.
    places: Vec<Place>,
    patience: Duration,
}

impl Asker {
    /// Asks at these places, each for so long at most.
    pub fn new(places: Vec<Place>, patience: Duration) -> Asker {
        Asker { places, patience }
    }

    /// The answer of the first place that answers; if none does, the error at the first.
    ///
    /// # Errors
    /// No helper listens there, or the answer is wrong.
    pub async fn ask(&self) -> Result<Reading> {
        let mut missed = None;
        for place in &self.places {
            match tokio::time::timeout(self.patience, ask_at(place)).await {
                Ok(Err(error @ Error::Nobody { .. })) => {
                    missed.get_or_insert(error);
                }
                Ok(asked) => return asked,
                Err(_) => return Err(Error::Late { at: place.clone(), patience: self.patience }),
            }
        }
        Err(missed.expect("invariant: there is at least one place"))
    }
}

async fn ask_at(place: &Place) -> Result<Reading> {
    let mut sender = connect(place).await?;
    let request = Request::get("/overview").header("host", "helper").body(Full::default());
    let request = request.expect("invariant: a path and a name make a request");
    let answer = sender.send_request(request).await.map_err(|error| Error::broken(place, &error))?;
    if !answer.status().is_success() {
        let reason = format!("it answers {}; is it of an older version?", answer.status());
        return Err(Error::Broken { at: place.clone(), reason });
    }
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| Error::broken(place, &*error))?;
    Reading::parse(&body.to_bytes()).map_err(Error::Malformed)
}
