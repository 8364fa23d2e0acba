//! What a writer does next, and what that touches.

/// One change, as a form, with what it touches: the shop's rules, written down a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    Price { product: i64, cents: i64 },
    Delivery { product: i64, pieces: i64 },
    NewProduct { category: i64, cents: i64 },
    IntoCart { customer: i64, product: i64 },
    Order { customer: i64, products: Vec<i64> },
}

impl Errand {
    pub fn path(&self) -> String {
        match self {
            Errand::Price { product, .. } => format!("/product/{product}/price"),
            Errand::Delivery { product, .. } => format!("/product/{product}/delivery"),
            Errand::NewProduct { category, .. } => format!("/category/{category}/products"),
            Errand::IntoCart { customer, .. } => format!("/cart/{customer}"),
            Errand::Order { customer, .. } => format!("/cart/{customer}/order"),
        }
    }

    pub fn form(&self) -> String {
        match self {
            Errand::Price { cents, .. } => format!("number={cents}"),
            Errand::Delivery { pieces, .. } => format!("number={pieces}"),
            Errand::NewProduct { cents, .. } => format!("name=Novelty&number={cents}"),
            Errand::IntoCart { product, .. } => format!("product={product}&number=1"),
            Errand::Order { .. } => String::new(),
        }
    }

    /// The rows that it changes. `id` is the new product's number.
    pub fn touches(&self, id: i64) -> Vec<String> {
        let mut touched = match self {
            Errand::Price { product, .. } | Errand::Delivery { product, .. } => vec![format!("product:{product}")],
            Errand::NewProduct { category, .. } => vec![format!("category:{category}"), format!("product:{id}")],
            Errand::IntoCart { customer, .. } => return vec![format!("cart:{customer}")],
            Errand::Order { customer, products } => {
                let mut touched: Vec<String> = products.iter().map(|product| format!("product:{product}")).collect();
                touched.sort();
                touched.dedup();
                touched.push(format!("cart:{customer}"));
                touched
            }
        };
        touched.push("catalogue".into());
        touched
    }
}

/// Reads the answer to a change: its commit number, and what it was about.
pub(crate) fn committed(body: &[u8]) -> Option<(i64, i64)> {
    let mut words = std::str::from_utf8(body).ok()?.split_whitespace();
    let mut labelled = |label: &str| (words.next()? == label).then(|| words.next()?.parse().ok()).flatten();
    Some((labelled("commit")?, labelled("id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_commit() {
        assert_eq!(committed(b"commit 17 id 4\n"), Some((17, 4)));
        for other in [&b"commit x id 4"[..], b"id 4", b"commit 17", b"", b"\xff"] {
            assert_eq!(committed(other), None);
        }
    }

    /// Against the shop itself: what it says that a change touches is a part of what is expected here.
    #[test]
    fn it_agrees_with_the_shop() {
        use verbena_shop::{Change, Database};
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("shop.db")).unwrap();
        let into_cart = Change::IntoCart { customer: 4, product: 9, quantity: 1 };
        into_cart.apply(&database).unwrap();
        for (errand, change) in [
            (Errand::Price { product: 7, cents: 1 }, Change::Price { product: 7, cents: 1 }),
            (Errand::Delivery { product: 7, pieces: 1 }, Change::Delivery { product: 7, pieces: 1 }),
            (Errand::IntoCart { customer: 4, product: 9 }, into_cart),
            (Errand::Order { customer: 4, products: vec![9, 9] }, Change::Order { customer: 4 }),
            (Errand::NewProduct { category: 3, cents: 1 }, Change::Product { category: 3, name: "x".into(), cents: 1 }),
        ] {
            let (expected, said) = (errand.touches(201), change.touches(&database).unwrap());
            assert!(said.iter().all(|name| expected.contains(name)), "{errand:?}: {expected:?} {said:?}");
            // A new product has no page of its own yet.
            let created = usize::from(matches!(errand, Errand::NewProduct { .. }));
            assert_eq!(expected.len(), said.len() + created, "{errand:?}: {expected:?} {said:?}");
        }
    }
}
