//! What the tests over real fabrics and in the simulation share.

pub mod history;
