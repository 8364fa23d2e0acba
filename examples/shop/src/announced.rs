//! The shop with the two additions: what pages are made of, and a bracket around writes.
//!
//! Most of it is Verbena's layer around the same routes. What an order touches is known only to the database, so it has a bracket of its own.

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Router};
use verbena_client::{AnnounceLayer, MadeOf, Outcome, Scope, Updates, Write};

use crate::database::{Database, Error};
use crate::model::{self, Change, Committed};
use crate::pages::Page;
use crate::routes::{Way, answer, blocking, refusal, routes};

/// How often an order is announced anew because the cart became another.
const ATTEMPTS: usize = 5;

/// The shop, which tells this machine's helper of every write before and after it.
pub fn announced(database: Database, updates: Updates) -> Router {
    let layer = AnnounceLayer::new(updates.clone()).touching(touched);
    routes(Announced { database, updates }).layer(layer)
}

/// What a request that writes touches: the data behind every page that shows it, or would show it.
fn touched(request: &Parts) -> Write {
    let path: Vec<&str> = request.uri.path().split('/').skip(1).collect();
    // As a number, so that /product/07 is the product that it is.
    let number = path.get(1).and_then(|text| text.parse().ok());
    match (path.as_slice(), number) {
        (["product", _, "price" | "delivery"], Some(product)) => Write::to(model::product(product)),
        (["category", _, "products"], Some(category)) => Write::to(model::category(category)),
        (["cart", _], Some(customer)) => Write::to(model::cart(customer)),
        (["cart", _, "order"], Some(_)) => Write::Unannounced,
        _ => Write::Touches(Scope::EVERYTHING),
    }
}

#[derive(Clone)]
struct Announced {
    database: Database,
    updates: Updates,
}

impl Way for Announced {
    async fn show(self, make: impl FnOnce(&Database) -> Result<Page, Error> + Send + 'static) -> Response {
        match blocking(move || make(&self.database)).await {
            Ok(page) => (Extension(MadeOf::these(page.dependencies)), Html(page.html)).into_response(),
            Err(error) => refusal(&error),
        }
    }

    async fn change(self, change: Change) -> Response {
        if matches!(change, Change::Order { .. }) {
            // In a task of its own: a client that hangs up must not leave an update begun and never ended.
            return match tokio::spawn(self.order(change)).await {
                Ok(response) => response,
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            };
        }
        let made = blocking(move || change.apply(&self.database)).await;
        let outcome = outcome(&made);
        match made {
            Ok(committed) => answer(committed),
            Err(error) => (Extension(outcome), refusal(&error)).into_response(),
        }
    }
}

impl Announced {
    async fn order(self, order: Change) -> Response {
        for _ in 0..ATTEMPTS {
            let (database, asked) = (self.database.clone(), order.clone());
            let touched = match blocking(move || asked.touches(&database)).await {
                Ok(touched) => touched,
                Err(error) => return refusal(&error),
            };
            // Not begun: caches could go on serving what this write changes, so it is not made.
            let update = match self.updates.begin(&Scope::of(touched.clone())).await {
                Ok(update) => update,
                Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
            };
            let (database, asked) = (self.database.clone(), order.clone());
            let made = blocking(move || asked.apply_as_announced(&database, &touched)).await;
            match (update.end(outcome(&made)).await, made) {
                (Ok(()), Ok(committed)) => return answer(committed),
                // The order is in the database, and some cache may not know: so it is not acknowledged.
                (Err(_), Ok(_)) => return (StatusCode::INTERNAL_SERVER_ERROR, "unconfirmed\n").into_response(),
                (_, Err(Error::NotAsAnnounced)) => {}
                (_, Err(error)) => return refusal(&error),
            }
        }
        refusal(&Error::NotAsAnnounced)
    }
}

/// What became of a write.
fn outcome(made: &Result<Committed, Error>) -> Outcome {
    match made {
        Ok(_) => Outcome::Done,
        Err(error) if error.nothing_written() => Outcome::NotSent,
        Err(_) => Outcome::Unknown,
    }
}
