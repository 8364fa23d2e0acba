//! The shop's pages and changes.

use axum::Router;
use verbena_shop::{Database, Plain, routes};

use crate::common::{change, database, get, post, shown_change, shown_commit};

fn shop() -> (tempfile::TempDir, Router) {
    let (directory, database) = database();
    (directory, routes(Plain { database }))
}

#[tokio::test]
async fn the_front_page_has_ten_parts_made_of_many_rows() {
    let (_directory, shop) = shop();
    let page = get(&shop, "/").await;
    assert_eq!(page.matches("<h2>").count(), 10);
    assert!(page.matches("data-row=\"product:").count() >= 40, "{page}");
    assert_eq!((shown_commit(&page), shown_change(&page, "catalogue")), (1, 1));
}

#[tokio::test]
async fn an_insert_changes_the_list_of_its_category_and_no_other() {
    let (_directory, shop) = shop();
    let (before, other) = (get(&shop, "/category/3").await, get(&shop, "/category/4").await);
    let (commit, id) = change(&shop, "/category/3/products", "name=Kettle+%3Cb%3E&number=1999").await;
    let after = get(&shop, "/category/3").await;
    assert!(!before.contains("Kettle") && after.contains("Kettle &lt;b&gt;</a> 19.99 (10)"), "{after}");
    assert_eq!(shown_change(&after, "category:3"), commit);
    assert_eq!(shown_change(&after, &format!("product:{id}")), commit);
    assert_eq!(shown_commit(&after), commit);
    let (_, rest) = other.split_once("data-commit=\"1\"").unwrap();
    assert!(get(&shop, "/category/4").await.ends_with(rest));
    assert!(get(&shop, "/").await.contains("Kettle"));
}

#[tokio::test]
async fn an_order_lowers_stock_and_empties_the_cart() {
    let (_directory, shop) = shop();
    assert!(get(&shop, "/product/1").await.contains("(21)"));
    change(&shop, "/cart/9", "product=1&number=4").await;
    let (filled, _) = change(&shop, "/cart/9", "product=2&number=1").await;
    let cart = get(&shop, "/cart/9").await;
    assert_eq!(shown_change(&cart, "cart:9"), filled);
    assert!(cart.contains("of it: 4"));
    let (ordered, _) = change(&shop, "/cart/9/order", "").await;
    let product = get(&shop, "/product/1").await;
    assert!(product.contains("(17)"), "{product}");
    assert_eq!(shown_change(&product, "product:1"), ordered);
    assert_eq!(shown_change(&get(&shop, "/product/3").await, "product:3"), 1);
    let cart = get(&shop, "/cart/9").await;
    assert_eq!(shown_change(&cart, "cart:9"), ordered);
    assert!(!cart.contains("data-row=\"product:"));
    let (status, _) = post(&shop, "/cart/9/order", "").await;
    assert_eq!(status, 409, "an empty cart was ordered");
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let (_directory, shop) = shop();
    change(&shop, "/cart/1", "product=1&number=22").await;
    let before = get(&shop, "/").await;
    for (path, form, expected) in [
        ("/product/1/price", "number=-1", 409),
        ("/product/1/price", "number=100000001", 409),
        ("/product/1/price", "number=9223372036854775808", 422),
        ("/product/1/price", "", 422),
        ("/product/one/price", "number=1", 400),
        ("/product/1000/price", "number=1", 404),
        ("/product/1/delivery", "number=0", 409),
        ("/product/1/delivery", "number=1000000", 409),
        ("/product/1000/delivery", "number=1", 404),
        ("/category/99/products", "name=x&number=1", 404),
        ("/category/1/products", "name=&number=1", 409),
        ("/cart/1", "product=1000&number=1", 404),
        ("/cart/1", "product=1&number=0", 409),
        // Of product 1 there are 21.
        ("/cart/1/order", "", 409),
        ("/nothing", "", 404),
        ("/", "", 405),
    ] {
        let (status, body) = post(&shop, path, form).await;
        assert_eq!(status, expected, "{path} {form}: {body}");
    }
    assert_eq!(get(&shop, "/").await, before);
}

/// One writer keeps the stock of two products the same; every page shows them the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_one_state_of_the_database() {
    let (directory, shop) = shop();
    let other = routes(Plain { database: Database::open(&directory.path().join("shop.db")).unwrap() });
    let writer = tokio::spawn(async move {
        for _ in 0..60 {
            change(&other, "/cart/5", "product=1&number=1").await;
            change(&other, "/cart/5", "product=2&number=1").await;
            change(&other, "/cart/5/order", "").await;
            for product in [1, 2] {
                change(&other, &format!("/product/{product}/delivery"), "number=1").await;
            }
        }
    });
    let mut states = std::collections::BTreeSet::new();
    while !writer.is_finished() {
        let page = get(&shop, "/category/1").await;
        let stock = |product: i64| -> i64 {
            let (_, item) = page.split_once(&format!("data-row=\"product:{product}\"")).unwrap();
            let (_, stock) = item.split_once(" (").unwrap();
            stock.split_once(')').unwrap().0.parse().unwrap()
        };
        // Product 1 began with 21 and product 2 with 22; a delivery comes to 1 first.
        let ahead = stock(1) + 1 - stock(2);
        let (one, two) = (shown_change(&page, "product:1"), shown_change(&page, "product:2"));
        assert_eq!(ahead, i64::from(one > two), "{page}");
        assert!(one.max(two) <= shown_commit(&page));
        states.insert(shown_commit(&page));
    }
    writer.await.unwrap();
    assert!(states.len() >= 3, "only {} states were seen", states.len());
}
