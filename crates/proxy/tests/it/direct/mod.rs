//! Hits that are answered beneath hyper: the bytes, the counts and the application's requests are those of a proxy that has hyper answer all.

mod cost;
mod ends;
mod requests;
mod same;
mod twins;
