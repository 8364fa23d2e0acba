//! `products`: a shop's products by their number, each on a page of the size that a trace gives it.
//!
//! ```text
//! GET  /product/NUMBER    reads the product's row; says that the page is made of it
//! POST /product/NUMBER    sells one, in a transaction; answers with the product's new version
//! ```

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Response, StatusCode};
use rusqlite::{OptionalExtension, TransactionBehavior};
use verbena_client::Updates;

use super::application::{Connections, Part, bracketed, made_of, told};
use super::threads;

pub(crate) const ROLE: &str = "products";

/// The least and most bytes of a page: its path and version fit into the least.
pub(crate) const SMALLEST_BYTES: u64 = 40;
pub(crate) const LARGEST_BYTES: u64 = 16 << 10;

const SCHEMA: &str = "
CREATE TABLE product (
    id INTEGER PRIMARY KEY,
    bytes INTEGER NOT NULL,
    version INTEGER NOT NULL,
    price_cents INTEGER NOT NULL,
    sold INTEGER NOT NULL
);
";

/// What the page of a product is called.
pub(crate) fn path(product: u32) -> String {
    format!("/product/{product}")
}

/// Makes a database with a product for each of `sizes`, whose page has this many bytes.
pub(crate) fn fill(file: &Path, sizes: &[usize]) -> Result<(), String> {
    let filled = Connections::to(file).with(|connection| {
        let filling = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        filling.execute_batch(SCHEMA)?;
        {
            let mut product = filling.prepare("INSERT INTO product VALUES (?1, ?2, 1, 100 + ?1 * 7919 % 9973, 0)")?;
            for (id, bytes) in sizes.iter().enumerate() {
                product.execute([id as i64, *bytes as i64])?;
            }
        }
        filling.commit()
    });
    filled.map_err(|error| format!("{}: {error}", file.display()))
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let application =
        Arc::new(Application { products: Products(Connections::to(&part.file)), helper: part.helper.map(Updates::at) });
    threads::serve(part.listen, part.threads, move |request| {
        let application = Arc::clone(&application);
        async move { application.answer(request.method(), request.uri().path()).await }
    })
}

struct Application {
    products: Products,
    helper: Option<Updates>,
}

impl Application {
    async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let product = path.strip_prefix("/product/").and_then(|number| number.parse::<u32>().ok());
        let answer = match (method, product) {
            (&Method::GET, Some(product)) => match self.products.page(path, product) {
                Ok(Some(page)) => made_of(page, std::iter::once(name(product))),
                Ok(None) => Ok(told(StatusCode::NOT_FOUND, "no such product\n".to_owned())),
                Err(error) => Err(error.to_string()),
            },
            (&Method::POST, Some(product)) => {
                bracketed(self.helper.as_ref(), name(product), || self.products.sell(product)).await
            }
            _ => Ok(told(StatusCode::NOT_FOUND, "no such address\n".to_owned())),
        };
        answer.unwrap_or_else(|reason| told(StatusCode::SERVICE_UNAVAILABLE, reason))
    }
}

/// What a product is called between the application and the helper.
fn name(product: u32) -> String {
    format!("product:{product}")
}

struct Products(Connections);

impl Products {
    fn page(&self, path: &str, product: u32) -> rusqlite::Result<Option<String>> {
        self.0.with(|connection| {
            let mut row =
                connection.prepare_cached("SELECT bytes, version, price_cents, sold FROM product WHERE id = ?1")?;
            let row = row.query_row([product], |row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
            });
            let page = |(bytes, version, price, sold)| {
                let mut text =
                    format!("{path}\n{version}\n<h1>Product {product}</h1><p>{price} cents, {sold} sold</p>\n");
                let bytes = bytes as usize;
                text.truncate(bytes);
                text.extend(std::iter::repeat_n(' ', bytes - text.len()));
                text
            };
            Ok(row.optional()?.map(page))
        })
    }

    /// Sells one; the product's version after that.
    fn sell(&self, product: u32) -> rusqlite::Result<i64> {
        self.0.with(|connection| {
            connection
                .prepare_cached(
                    "UPDATE product SET sold = sold + 1, version = version + 1 WHERE id = ?1 RETURNING version",
                )?
                .query_row([product], |row| row.get(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_size_and_shows_what_was_sold() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("db");
        fill(&file, &[40, 300]).unwrap();
        let products = Products(Connections::to(&file));
        let page = |product| products.page(&path(product), product).unwrap().unwrap();
        assert_eq!((page(0).len(), page(1).len()), (40, 300));
        assert!(page(1).starts_with("/product/1\n1\n<h1>Product 1</h1>"), "{}", page(1));
        assert_eq!([products.sell(1).unwrap(), products.sell(1).unwrap()], [2, 3]);
        assert!(page(1).starts_with("/product/1\n3\n") && page(1).contains("2 sold"), "{}", page(1));
        assert!(page(0).starts_with("/product/0\n1\n"));
        assert_eq!(products.page("/product/2", 2).unwrap(), None);
        // The least is enough for the path and version of any.
        assert!(format!("{}\n{}\n", path(u32::MAX), 10_000_000_000_u64).len() <= SMALLEST_BYTES as usize);
    }
}
