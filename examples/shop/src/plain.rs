//! The shop as anyone would write it: it knows of no cache.

use axum::response::{Html, IntoResponse, Response};

use crate::database::{Database, Error};
use crate::model::Change;
use crate::pages::Page;
use crate::routes::{Way, answer, blocking, refusal};

/// Serves pages and makes changes, and tells nobody.
#[derive(Clone)]
pub struct Plain {
    /// The shop's data.
    pub database: Database,
}

impl Way for Plain {
    async fn show(self, make: impl FnOnce(&Database) -> Result<Page, Error> + Send + 'static) -> Response {
        match blocking(move || make(&self.database)).await {
            Ok(page) => Html(page.html).into_response(),
            Err(error) => refusal(&error),
        }
    }

    async fn change(self, change: Change) -> Response {
        match blocking(move || change.apply(&self.database)).await {
            Ok(committed) => answer(committed),
            Err(error) => refusal(&error),
        }
    }
}
