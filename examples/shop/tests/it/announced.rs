//! The announced shop, against a helper that writes down what it is told.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};
use verbena_client::{Place, Updates};
use verbena_shop::{Change, Database, announced};

use crate::common::{self, ask, change, database, get};

/// What the helper of the test does, and what it was told.
#[derive(Clone)]
struct Told {
    begin: StatusCode,
    acknowledge: bool,
    /// Done at the first Begin: what others do to the data meanwhile.
    meanwhile: Arc<Mutex<Option<Change>>>,
    database: Database,
    log: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn new(database: &Database) -> Self {
        let (meanwhile, log) = (Arc::default(), Arc::default());
        Told { begin: StatusCode::CREATED, acknowledge: true, meanwhile, database: database.clone(), log }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// The shop that tells this helper.
    async fn shop(&self) -> Router {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let helper = Updates::at(Place::Loopback(listener.local_addr().unwrap()));
        let app = Router::new()
            .route("/v1/updates", post(begin))
            .route("/v1/updates/{id}/end", post(end))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        announced(self.database.clone(), helper)
    }
}

async fn begin(State(told): State<Told>, body: Bytes) -> (StatusCode, String) {
    let body: Value = serde_json::from_slice(&body).unwrap();
    told.log.lock().push(format!("begin {}", body["dependencies"]));
    let meanwhile = told.meanwhile.lock().take();
    if let Some(change) = meanwhile {
        change.apply(&told.database).unwrap();
    }
    (told.begin, json!({ "update": "u1", "error": "no lease" }).to_string())
}

async fn end(State(told): State<Told>, Path(id): Path<String>, body: Bytes) -> String {
    let body: Value = serde_json::from_slice(&body).unwrap();
    told.log.lock().push(format!("end {id} {}", body["outcome"]));
    json!({ "acknowledge": told.acknowledge }).to_string()
}

async fn order(shop: &Router) -> (StatusCode, String) {
    common::post(shop, "/cart/1/order", "").await
}

fn into_cart(product: i64) -> Change {
    Change::IntoCart { customer: 1, product, quantity: 2 }
}

#[tokio::test]
async fn pages_say_what_they_are_made_of() {
    let (_directory, database) = database();
    into_cart(3).apply(&database).unwrap();
    let shop = Told::new(&database).shop().await;
    let mut found = Vec::new();
    for path in ["/", "/category/1", "/product/7", "/cart/1", "/product/1000"] {
        let (_, headers, _) = ask(&shop, Request::get(path).body(Body::empty()).unwrap()).await;
        found.push(headers.get("verbena-dependencies").map(|value| value.to_str().unwrap().to_owned()));
    }
    assert_eq!(found[0].as_deref(), Some("\"catalogue\""));
    let category = found[1].as_deref().unwrap();
    assert!(category.starts_with("\"category:1\", \"product:1\", ") && category.ends_with(", \"product:25\""));
    assert_eq!(found[2].as_deref(), Some("\"product:7\""));
    assert_eq!(found[3].as_deref(), Some("\"cart:1\", \"product:3\""));
    // What is not there says nothing, so it depends on everything.
    assert_eq!(found[4], None);
}

#[tokio::test]
async fn a_write_is_announced_made_and_ended() {
    let (_directory, database) = database();
    into_cart(3).apply(&database).unwrap();
    let told = Told::new(&database);
    let shop = told.shop().await;
    change(&shop, "/product/7/price", "number=5").await;
    change(&shop, "/product/007/delivery", "number=5").await;
    change(&shop, "/category/2/products", "name=Kettle&number=5").await;
    change(&shop, "/cart/2", "product=7&number=1").await;
    change(&shop, "/cart/1/order", "").await;
    assert_eq!(
        told.log(),
        [
            "begin [\"product:7\",\"catalogue\"]",
            "end u1 \"done\"",
            "begin [\"product:7\",\"catalogue\"]",
            "end u1 \"done\"",
            "begin [\"category:2\",\"catalogue\"]",
            "end u1 \"done\"",
            "begin [\"cart:2\"]",
            "end u1 \"done\"",
            "begin [\"product:3\",\"cart:1\",\"catalogue\"]",
            "end u1 \"done\"",
        ]
    );
}

#[tokio::test]
async fn what_is_not_made_ends_as_not_sent() {
    let (_directory, database) = database();
    let told = Told::new(&database);
    let shop = told.shop().await;
    assert_eq!(order(&shop).await.0, 409);
    assert_eq!(common::post(&shop, "/product/1000/price", "number=5").await.0, 404);
    assert_eq!(common::post(&shop, "/nothing/here", "").await.0, 404);
    assert_eq!(
        told.log(),
        [
            "begin [\"cart:1\",\"catalogue\"]",
            "end u1 \"not-sent\"",
            "begin [\"product:1000\",\"catalogue\"]",
            "end u1 \"not-sent\"",
            // Of an address that it does not know it says nothing better.
            "begin null",
            "end u1 \"done\"",
        ]
    );
}

#[tokio::test]
async fn an_order_whose_cart_changed_meanwhile_is_announced_anew() {
    let (_directory, database) = database();
    into_cart(3).apply(&database).unwrap();
    let told = Told::new(&database);
    *told.meanwhile.lock() = Some(into_cart(4));
    let shop = told.shop().await;
    assert_eq!(order(&shop).await.0, 200);
    assert_eq!(
        told.log(),
        [
            "begin [\"product:3\",\"cart:1\",\"catalogue\"]",
            "end u1 \"not-sent\"",
            "begin [\"product:3\",\"product:4\",\"cart:1\",\"catalogue\"]",
            "end u1 \"done\"",
        ]
    );
    assert!(get(&shop, "/product/4").await.contains("(22)"));
}

#[tokio::test]
async fn a_write_that_cannot_be_announced_is_not_made() {
    let (_directory, database) = database();
    let told = Told { begin: StatusCode::SERVICE_UNAVAILABLE, ..Told::new(&database) };
    let shop = told.shop().await;
    let before = get(&shop, "/").await;
    let (status, body) = common::post(&shop, "/product/7/price", "number=5").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert_eq!(order(&shop).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(&shop, "/").await, before);

    // Nobody listens where the helper should be.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let shop = announced(database.clone(), Updates::at(Place::Loopback(gone)));
    assert_eq!(common::post(&shop, "/product/7/price", "number=5").await.0, 503);
    assert_eq!(get(&shop, "/").await, before);
}

#[tokio::test]
async fn a_write_that_caches_may_not_know_is_not_acknowledged() {
    let (_directory, database) = database();
    let told = Told { acknowledge: false, ..Told::new(&database) };
    let shop = told.shop().await;
    let (status, _) = common::post(&shop, "/product/7/price", "number=5").await;
    assert_eq!(status, 500);
    assert!(get(&shop, "/product/7").await.contains(" 0.05 "));
}
