//! The addresses of the shop's pages and forms, for every way of serving them.

use axum::Router;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::database::{Database, Error};
use crate::model::{Change, Committed};
use crate::pages::{self, Page};

/// How pages are shown and changes are made.
pub trait Way: Clone + Send + Sync + 'static {
    /// Answers with a page.
    fn show(
        self,
        make: impl FnOnce(&Database) -> Result<Page, Error> + Send + 'static,
    ) -> impl Future<Output = Response> + Send;

    /// Makes a change, and answers with its commit number.
    fn change(self, change: Change) -> impl Future<Output = Response> + Send;
}

/// A number in a path, and a form.
type Id = Result<Path<i64>, PathRejection>;
type Filled<T> = Result<Form<T>, FormRejection>;

/// The shop, served one way.
pub fn routes<W: Way>(way: W) -> Router {
    Router::new()
        .route("/", get(async |State(way): State<W>| way.show(pages::front).await))
        .route("/category/{id}", get(async |way: State<W>, id: Id| page(way, id, pages::category).await))
        .route("/product/{id}", get(async |way: State<W>, id: Id| page(way, id, pages::product).await))
        .route("/cart/{id}", get(async |way: State<W>, id: Id| page(way, id, pages::cart).await))
        .route("/product/{id}/price", post(price::<W>))
        .route("/product/{id}/delivery", post(delivery::<W>))
        .route("/category/{id}/products", post(new_product::<W>))
        .route("/cart/{id}", post(into_cart::<W>))
        .route("/cart/{id}/order", post(order::<W>))
        .with_state(way)
}

/// A number of pieces, or of cents.
#[derive(Deserialize)]
struct Number {
    number: i64,
}

#[derive(Deserialize)]
struct NewProduct {
    name: String,
    number: i64,
}

#[derive(Deserialize)]
struct IntoCart {
    product: i64,
    number: i64,
}

async fn page<W: Way>(State(way): State<W>, id: Id, make: fn(&Database, i64) -> Result<Page, Error>) -> Response {
    match id {
        Ok(Path(id)) => way.show(move |database| make(database, id)).await,
        Err(rejection) => rejection.into_response(),
    }
}

async fn price<W: Way>(way: State<W>, id: Id, form: Filled<Number>) -> Response {
    change(way, id, form, |product, form| Change::Price { product, cents: form.number }).await
}

async fn delivery<W: Way>(way: State<W>, id: Id, form: Filled<Number>) -> Response {
    change(way, id, form, |product, form| Change::Delivery { product, pieces: form.number }).await
}

async fn new_product<W: Way>(way: State<W>, id: Id, form: Filled<NewProduct>) -> Response {
    change(way, id, form, |category, form| Change::Product { category, name: form.name, cents: form.number }).await
}

async fn into_cart<W: Way>(way: State<W>, id: Id, form: Filled<IntoCart>) -> Response {
    change(way, id, form, |customer, form| Change::IntoCart { customer, product: form.product, quantity: form.number })
        .await
}

async fn order<W: Way>(State(way): State<W>, id: Id) -> Response {
    match id {
        Ok(Path(customer)) => way.change(Change::Order { customer }).await,
        Err(rejection) => rejection.into_response(),
    }
}

async fn change<W: Way, T>(
    State(way): State<W>,
    id: Id,
    form: Filled<T>,
    read: impl FnOnce(i64, T) -> Change,
) -> Response {
    match (id, form) {
        (Ok(Path(id)), Ok(Form(form))) => way.change(read(id, form)).await,
        (Err(rejection), _) => rejection.into_response(),
        (_, Err(rejection)) => rejection.into_response(),
    }
}

/// What a change that was made is answered with.
pub(crate) fn answer(Committed { commit, id }: Committed) -> Response {
    ([("content-type", "text/plain")], format!("commit {commit} id {id}\n")).into_response()
}

/// What is answered when there is no page, or no change was made.
pub(crate) fn refusal(error: &Error) -> Response {
    let status = match error {
        Error::Database { .. } if error.nothing_written() => StatusCode::SERVICE_UNAVAILABLE,
        Error::Database { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        Error::Missing { .. } => StatusCode::NOT_FOUND,
        Error::Refused(_) | Error::NotAsAnnounced => StatusCode::CONFLICT,
    };
    (status, format!("{error}\n")).into_response()
}

/// SQLite blocks its thread, so it gets one.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
