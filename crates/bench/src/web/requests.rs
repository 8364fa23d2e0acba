//! What clients ask for: pages, in an order that a seed decides.

use serde::{Deserialize, Serialize};

use crate::traces::{LawError, Poisson, RequestLaw, SizeLaw, Zipf};

/// Requests after which an order begins anew: as many as the dissertation took of the World Cup trace.
const ORDER: usize = 20_000;

/// Objects of the application with a database, and its pages for each number of dependencies.
pub(crate) const OBJECTS: u32 = 200;

/// Bytes of one of its pages.
pub(crate) const PAGE_BYTES: usize = 8 << 10;

/// From one object of a page to the next: it has no divisor in common with [`OBJECTS`], so a page has no object twice, and each object is
/// in as many pages as a page has objects.
const STRIDE: u32 = 37;

/// Files of the mixed workload, and the least and most bytes of one.
const FILES: u32 = 20;
const SMALLEST: f64 = 200.0;
const LARGEST: f64 = 1_048_576.0;

/// A workload, by its law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// One file of `bytes` bytes.
    Single { bytes: usize },
    /// 20 files of 200 bytes to 1 MB, asked for by a Zipf law (alpha 1). Sizes grow by a factor, and have nothing to do with popularity.
    Files,
    /// As a web site's log: 2,000 files by a Zipf law (alpha 0.9), sizes log-normal around 4 KiB (sigma 1.2).
    Site,
    /// Files of `bytes` bytes, each once: `count` of them from number `first` on. Each depends on `dependencies` things
    /// that no other file depends on.
    Once { bytes: usize, first: u32, count: u32, dependencies: u32 },
    /// Pages of the application with a database, each made of `dependencies` objects; alpha 0 asks for all alike.
    Database { dependencies: u32, alpha: f64 },
}

/// A page, as a client knows it.
#[derive(Debug, PartialEq)]
pub(super) struct Page {
    pub(super) path: String,
    pub(super) bytes: usize,
    /// What it is made of; nothing if it never changes.
    pub(super) objects: Vec<u32>,
}

/// Pages, and in which order they are asked for.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) pages: Vec<Page>,
    pub(super) order: Vec<u32>,
}

/// The path of page `page` with `dependencies` dependencies.
pub(crate) fn database_path(dependencies: u32, page: u32) -> String {
    format!("/page/{dependencies}/{page}")
}

/// The path of file `name` of `bytes` bytes with `dependencies` dependencies. All names have the same length.
pub(crate) fn once_path(bytes: usize, name: u32, dependencies: u32) -> String {
    format!("/{bytes}/{name:08}/{dependencies}")
}

/// The objects that page `page` is made of.
pub(super) fn objects(dependencies: u32, page: u32) -> impl Iterator<Item = u32> {
    (0..dependencies).map(move |nth| (page + nth * STRIDE) % OBJECTS)
}

impl Workload {
    pub(super) fn requests(&self, seed: u64) -> Result<Requests, LawError> {
        let file = |bytes: usize, name: u32| Page { path: format!("/{bytes}/{name}"), bytes, objects: Vec::new() };
        let law = |objects: u32, alpha: f64, sizes: SizeLaw| -> Result<RequestLaw, LawError> {
            Ok(RequestLaw { popularity: Zipf::new(u64::from(objects), alpha)?, arrivals: Poisson::new(1.0)?, sizes })
        };
        // Keys are ranks, from 1.
        let by = |law: RequestLaw| -> Vec<(u32, usize)> {
            let rank = |key: &str| key.parse::<u32>().map_or(0, |rank| rank - 1);
            law.requests(seed).take(ORDER).map(|one| (rank(&one.key), one.size_bytes as usize)).collect()
        };
        let one_byte = SizeLaw::Fixed { bytes: 1 };
        Ok(match *self {
            Workload::Single { bytes } => Requests { pages: vec![file(bytes, 0)], order: vec![0] },
            Workload::Files => {
                let growth = (LARGEST / SMALLEST).powf(1.0 / f64::from(FILES - 1));
                let bytes = |file: u32| (SMALLEST * growth.powi(((file * 7 + 3) % FILES) as i32)).round() as usize;
                let order = by(law(FILES, 1.0, one_byte)?).into_iter().map(|(rank, _)| rank).collect();
                Requests { pages: (0..FILES).map(|name| file(bytes(name), name)).collect(), order }
            }
            Workload::Site => {
                let asked = by(law(2_000, 0.9, SizeLaw::LogNormal { median_bytes: 4_096, sigma: 1.2 })?);
                let mut known = std::collections::HashMap::new();
                let mut pages = Vec::new();
                let order = asked.into_iter().map(|(rank, bytes)| {
                    *known.entry(rank).or_insert_with(|| {
                        pages.push(file(bytes, rank));
                        pages.len() as u32 - 1
                    })
                });
                let order = order.collect();
                Requests { pages, order }
            }
            Workload::Once { bytes, first, count, dependencies } => {
                let path = |name: u32| once_path(bytes, name, dependencies);
                let page = |name| Page { path: path(name), bytes, objects: Vec::new() };
                Requests { pages: (first..first + count).map(page).collect(), order: (0..count).collect() }
            }
            Workload::Database { dependencies, alpha } => {
                let page = |page| Page {
                    path: database_path(dependencies, page),
                    bytes: PAGE_BYTES,
                    objects: objects(dependencies, page).collect(),
                };
                let order = by(law(OBJECTS, alpha, one_byte)?).into_iter().map(|(rank, _)| rank).collect();
                Requests { pages: (0..OBJECTS).map(page).collect(), order }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_what_they_say() {
        let files = Workload::Files.requests(1).unwrap();
        let mut sizes: Vec<usize> = files.pages.iter().map(|page| page.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!((sizes.len(), sizes[0], sizes[19]), (20, 200, 1 << 20));
        assert_eq!(files.order.len(), ORDER);
        let first = files.order.iter().filter(|page| **page == 0).count() as f64 / ORDER as f64;
        assert!((0.25..0.31).contains(&first), "1 / H(20) is 0.278, not {first}");

        let site = Workload::Site.requests(1).unwrap();
        assert!(site.pages.len() > 1_000 && site.order.iter().all(|page| (*page as usize) < site.pages.len()));
        assert_eq!(Workload::Single { bytes: 8_192 }.requests(1).unwrap().pages[0].path, "/8192/0");
    }

    #[test]
    fn an_object_is_in_as_many_pages_as_a_page_has_objects() {
        for dependencies in [1, 4, 64] {
            let requests = Workload::Database { dependencies, alpha: 0.0 }.requests(1).unwrap();
            let mut of = [0; OBJECTS as usize];
            for page in &requests.pages {
                let mut objects = page.objects.clone();
                objects.sort_unstable();
                objects.dedup();
                assert_eq!(objects.len(), dependencies as usize);
                objects.into_iter().for_each(|object| of[object as usize] += 1);
            }
            assert!(of.iter().all(|pages| *pages == dependencies));
        }
    }
}
