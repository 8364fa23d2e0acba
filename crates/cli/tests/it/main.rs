//! Tests of the command `verbena` as a process.
//!
//! | Module | What it tests |
//! |---|---|
//! | `announcing_application` | an application that announces its writes, behind a proxy |
//! | `applications` | two applications of one user |
//! | `bench` | `verbena bench` and `verbena traces` |
//! | `bench_rows` | rows that start nodes and proxies |
//! | `cluster` | nodes that live and die |
//! | `command_line` | what the command says of itself, and of what it is not told rightly |
//! | `config` | configuration from files, variables and flags |
//! | `cp_between` | `verbena cp` between two servers |
//! | `cp_local` | `verbena cp` on one machine |
//! | `dashboard` | the dashboard in a browser |
//! | `database` | an unchanged application whose database is behind the relay |
//! | `doctor` | `verbena doctor` |
//! | `etcd` | nodes that etcd keeps |
//! | `failures` | readers and writers while nodes fail |
//! | `fs` | `verbena fs` and `verbena bank` |
//! | `fs_memory` | a bank in memory of the helper |
//! | `ftp` | `verbena ftp` and `verbena cp` |
//! | `ftp_files` | `verbena ftp get` and its siblings, with foreign servers and TLS; clients that stop |
//! | `explain` | `verbena explain` |
//! | `fuzz_corpus` | whatever bytes a configuration has |
//! | `gluster` | `verbena bank gluster`, and a real glusterd |
//! | `grafana` | Grafana's dashboard against what a proxy publishes |
//! | `house` | the rules of the house |
//! | `keys` | `verbena keys`, and nodes that know each other by what it makes |
//! | `loads` | a proxy that asks the least loaded application |
//! | `lock` | `verbena lock`, and locks that programs take |
//! | `lock_crashes` | locks while clients, helpers and networks fail |
//! | `mem` | `verbena mem`, and memory that programs share |
//! | `mistakes` | mistakes that users make, and what they are told |
//! | `node` | one helper |
//! | `operating` | nodes that are drained, expelled and restarted |
//! | `other_caches` | two caches before one application |
//! | `overview` | one page that shows all nodes |
//! | `plain` | proxies and nodes that nobody configured |
//! | `postgresql` | an unchanged application whose database is PostgreSQL behind the relay |
//! | `purge` | `verbena purge` |
//! | `recipes` | the configurations that the documents show |
//! | `relay_tls` | TLS on both sides of the relay |
//! | `restart` | a proxy that ends and starts again |
//! | `sqlite` | SQLite databases in memory that nodes share |
//! | `top` | `verbena top` |
//! | `unchanged_application` | an application that knows nothing of proxies, behind two |
//! | `wan` | `verbena wan` |
//! | `xdp` | pages and locks whose home is reached by `xdp` |

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod announcing_application;
mod applications;
mod bench;
mod bench_rows;
mod cluster;
mod command_line;
mod common;
mod config;
mod cp_between;
mod cp_local;
mod dashboard;
mod database;
mod doctor;
mod documents;
mod etcd;
mod explain;
mod failures;
mod fs;
mod fs_memory;
mod ftp;
mod ftp_files;
mod ftp_servers;
mod fuzz_corpus;
mod gluster;
mod grafana;
mod house;
mod keys;
mod loads;
mod lock;
mod lock_crashes;
mod mem;
mod mistakes;
mod node;
mod operating;
mod other_caches;
mod overview;
mod plain;
mod postgresql;
mod purge;
mod recipes;
mod relay_alone;
mod relay_tls;
mod restart;
mod shared_pages;
mod sqlite;
mod standard;
mod top;
mod transfers;
mod unchanged_application;
mod wan;
mod xdp;
