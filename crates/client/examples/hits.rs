//! Memory that nodes share: a number that programs raise. Arguments: the directory of sockets and the name of a node.

use std::time::Duration;

use verbena_client::wire::LockMode;
use verbena_client::{Error, Failure, Memory, NewSegment, PutOptions, Socket};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (runtime, name) = (arguments.next(), arguments.next());
    let socket = Socket::new(runtime.as_deref().map(AsRef::as_ref), name.as_deref())?;
    let mut memory = Memory::connect(&socket, Duration::from_secs(10))?;
    let hits = match memory.allocate(NewSegment::of(8).named("hits")) {
        Err(Error::Memory { why: Failure::Exists, .. }) => memory.stat("hits")?.id,
        made => made?.id,
    };
    memory.put(hits, &1u64.to_le_bytes())?;

    // Over the version that was read: whoever was faster is not overwritten.
    loop {
        let value = memory.get("hits")?;
        let next = u64::from_le_bytes(value.bytes.try_into().expect("invariant: it has 8 bytes")) + 1;
        let over = PutOptions { over: Some(value.version), ..PutOptions::default() };
        match memory.put_with(hits, &next.to_le_bytes(), over) {
            Err(Error::Memory { why: Failure::Conflict { .. }, .. }) => {}
            put => break println!("{next} is version {}", put?),
        }
    }

    // The same under its lock.
    let hold = memory.lock(hits, LockMode::Exclusive, Some(Duration::from_secs(10)))?;
    let value = memory.get(hits)?;
    memory.put(hits, &value.bytes)?;
    memory.unlock(hold)?;
    Ok(())
}
