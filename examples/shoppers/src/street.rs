//! What there is to look at and to change, and who chooses what.

use rand_core::Rng;
use rand_pcg::Pcg64;

use crate::checker::PageId;

/// Products that shoppers may add to the shop: it must not grow for ever.
const NOVELTIES: usize = 400;

/// Draws ranks: the first is drawn most often, the k-th a k-th as often (Zipf's law with exponent 1).
#[derive(Debug, Default)]
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// A rank below `among`, which is not nought.
    fn draw(&mut self, among: usize, random: &mut Pcg64) -> usize {
        while self.sums.len() < among {
            let weight = 1.0 / (self.sums.len() + 1) as f64;
            self.sums.push(self.sums.last().unwrap_or(&0.0) + weight);
        }
        let point = fraction(random) * self.sums[among - 1];
        self.sums[..among].partition_point(|&sum| sum <= point).min(among - 1)
    }
}

/// The pages and the products that shoppers know.
#[derive(Debug)]
pub(crate) struct Street {
    pages: Vec<PageId>,
    products: Vec<i64>,
    categories: Vec<i64>,
    novelties: usize,
    zipf: Zipf,
    random: Pcg64,
}

impl Street {
    /// Pages in the order of how often they are visited; products in the order of how often they are changed.
    pub fn new(pages: Vec<PageId>, products: Vec<i64>, categories: Vec<i64>, random: Pcg64) -> Self {
        Street { pages, products, categories, novelties: 0, zipf: Zipf::default(), random }
    }

    pub fn page(&mut self) -> PageId {
        self.pages[self.zipf.draw(self.pages.len(), &mut self.random)]
    }

    pub fn product(&mut self) -> i64 {
        self.products[self.zipf.draw(self.products.len(), &mut self.random)]
    }

    /// Where a new product may come; none once there are many.
    pub fn category_for_a_novelty(&mut self) -> Option<i64> {
        let at = self.below(self.categories.len() as u64) as usize;
        (self.novelties < NOVELTIES).then(|| self.categories[at])
    }

    /// A new product, with its page.
    pub fn novelty(&mut self, product: i64, page: PageId) {
        self.novelties += 1;
        self.products.push(product);
        self.pages.push(page);
    }

    /// From now on this page is visited instead of that one.
    pub fn replace(&mut self, old: PageId, new: PageId) {
        self.pages.iter_mut().filter(|page| **page == old).for_each(|page| *page = new);
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        (fraction(&mut self.random) * bound as f64) as u64
    }
}

/// At least nought and less than one.
fn fraction(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    #[test]
    fn the_first_is_drawn_most_often_and_a_later_one_too() {
        let (mut zipf, mut random, mut drawn) = (Zipf::default(), Pcg64::seed_from_u64(1), [0; 100]);
        for _ in 0..10_000 {
            drawn[zipf.draw(100, &mut random)] += 1;
        }
        assert!((1700..2200).contains(&drawn[0]), "{drawn:?}");
        assert!(drawn[0] > drawn[1] && drawn[1] > drawn[9] && drawn[50..].iter().sum::<i32>() > 500, "{drawn:?}");
        assert_eq!(zipf.draw(1, &mut random), 0);
    }
}
