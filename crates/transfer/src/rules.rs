//! What both machines are set to.

/// Rules that a simulation can switch off, to see what each is for. Products leave them all on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// T6: a part has an owner, and only the owner writes and publishes. (For the store, not for the machines.)
    pub owner: bool,
    /// T7: the source is looked at again before its end is told.
    pub last_look: bool,
    /// T8: claimed chunks are hashed before they count.
    pub hash_claims: bool,
    /// T9: what was written is compared with what was read, by chunk and by root.
    pub compare_hashes: bool,
    /// T10: an end waits for every chunk.
    pub count_chunks: bool,
    /// T10: chunks of files that are not open are dropped.
    pub drop_strays: bool,
    /// T10: of two versions of a chunk the later one stays, whatever stream it came by.
    pub keep_order: bool,
    /// T11: dropped bytes count as taken.
    pub credit_dropped: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules {
        owner: true,
        last_look: true,
        hash_claims: true,
        compare_hashes: true,
        count_chunks: true,
        drop_strays: true,
        keep_order: true,
        credit_dropped: true,
    };
}

/// Bytes of a chunk, where nothing else was agreed.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// What a session is set to.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// The session's number, in each chunk.
    pub session: u64,
    /// Streams of the session.
    pub streams: u16,
    /// Bytes of a chunk: a power of two, from 1024.
    pub chunk_bytes: u64,
    /// Chunks that the sender holds at a time, read and not sent yet.
    pub buffers: usize,
    /// Bytes that may be under way on each stream: at least one chunk.
    pub window: u64,
    /// Files of up to so many bytes are sent behind their offer, without waiting for an answer.
    pub small: u64,
    /// Files that are offered and not settled.
    pub open_files: usize,
    /// Chunks that are written between two records of a part.
    pub record_every: usize,
    /// Whether the receiver copies from the files themselves, whose descriptors it was given (rule T3).
    pub is_handed_over: bool,
    /// What is obeyed.
    pub rules: Rules,
}

impl SessionSettings {
    /// The settings of the product for a session of this number.
    pub fn new(session: u64, streams: u16) -> SessionSettings {
        SessionSettings {
            session,
            streams,
            chunk_bytes: CHUNK_BYTES,
            buffers: 8,
            window: 8 << 20,
            small: 64 << 10,
            open_files: 64,
            record_every: 32,
            is_handed_over: false,
            rules: Rules::ALL,
        }
    }
}
