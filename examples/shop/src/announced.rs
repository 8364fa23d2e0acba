//! The shop with the two additions: a header on pages, and a bracket around writes.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use crate::database::{Database, Error};
use crate::helper::{Helper, Outcome};
use crate::model::Change;
use crate::pages::Page;
use crate::routes::{Way, answer, blocking, refusal};

/// How often a change is announced anew because the data that it touches became another.
const ATTEMPTS: usize = 5;

/// Says what each page is made of, and tells this machine's helper of each change before and after it.
#[derive(Clone)]
pub struct Announced {
    /// The shop's data.
    pub database: Database,
    /// Who is told.
    pub helper: Helper,
}

impl Way for Announced {
    async fn show(self, make: impl FnOnce(&Database) -> Result<Page, Error> + Send + 'static) -> Response {
        match blocking(move || make(&self.database)).await {
            Ok(page) => ([("verbena-dependencies", list(&page.dependencies))], Html(page.html)).into_response(),
            Err(error) => refusal(&error),
        }
    }

    async fn change(self, change: Change) -> Response {
        // In a task of its own: a client that hangs up must not leave an update begun and never ended.
        match tokio::spawn(self.bracketed(change)).await {
            Ok(response) => response,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

impl Announced {
    async fn bracketed(self, change: Change) -> Response {
        for _ in 0..ATTEMPTS {
            let (database, asked) = (self.database.clone(), change.clone());
            let touched = match blocking(move || asked.touches(&database)).await {
                Ok(touched) => touched,
                Err(error) => return refusal(&error),
            };
            // Not begun: caches could go on serving what this write changes, so it is not made.
            let update = match self.helper.begin(&touched).await {
                Ok(update) => update,
                Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
            };
            let (database, asked) = (self.database.clone(), change.clone());
            let made = blocking(move || asked.apply_as_announced(&database, &touched)).await;
            let outcome = match &made {
                Ok(_) => Outcome::Done,
                Err(error) if error.nothing_written() => Outcome::NotSent,
                Err(_) => Outcome::Unknown,
            };
            match (self.helper.end(&update, outcome).await, made) {
                (Ok(true), Ok(committed)) => return answer(committed),
                // The change is in the database, and some cache may not know: so it is not acknowledged.
                (_, Ok(_)) => return (StatusCode::INTERNAL_SERVER_ERROR, "unconfirmed\n").into_response(),
                (_, Err(Error::NotAsAnnounced)) => {}
                (_, Err(error)) => return refusal(&error),
            }
        }
        refusal(&Error::NotAsAnnounced)
    }
}

/// A structured field (RFC 9651): a list of strings.
fn list(names: &[String]) -> HeaderValue {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    HeaderValue::try_from(quoted.join(", ")).expect("invariant: names are words, colons and numbers")
}
