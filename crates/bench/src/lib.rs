//! The papers' tables and figures as experiments that anyone can run.

pub mod traces;
