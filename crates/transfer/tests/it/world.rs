//! A world for the machines: sources that change, a store that loses power, streams that are cut, clients that are killed
//! while their blocks are still under way. One seed is one run.

use std::collections::{BTreeMap, VecDeque};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_transfer::{
    Basis, Entry, EntryKind, Failure, FileNumber, Frame, Hash, Identity, Lanes, Look, Receiver, ReceiverAction, Rules,
    Sender, SenderAction, SessionSettings, chunk_hash,
};

const CHUNK: u64 = 1024;
/// Numbers of the streams of a session. The first one is there from the start.
const STREAMS: usize = 3;

/// What may happen, in runs of a thousand steps.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// The client is killed; its blocks are still under way.
    pub kill: u64,
    /// The receiving machine loses power.
    pub power: u64,
    /// A bit of a chunk flips on the way.
    pub flip: u64,
    /// The source changes.
    pub change: u64,
    /// Other streams are to carry chunks.
    pub lanes: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Files in place that no version of the source was ever equal to.
    pub wrong: u64,
    /// Files that were refused as damaged.
    pub damaged: u64,
    /// The last session, without faults, did not come to its end.
    pub is_stuck: bool,
    /// Files that were settled.
    pub stored: u64,
    /// Bytes of chunks that were sent.
    pub sent: u64,
}

#[derive(Debug, Default)]
struct Source {
    content: Vec<u8>,
    versions: Vec<Vec<u8>>,
    changes: u32,
}

#[derive(Debug, Default)]
struct Stored {
    target: Option<u64>,
    part: Option<u64>,
    owner: u64,
    claims: Vec<(u64, Hash)>,
}

#[derive(Debug)]
struct Session {
    number: u64,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    to_receiver: Vec<VecDeque<(Frame, Vec<u8>)>>,
    to_sender: Vec<VecDeque<Frame>>,
    sender_work: Vec<SenderAction>,
    receiver_work: Vec<ReceiverAction>,
    /// Streams that are still to join.
    to_join: Vec<u16>,
    /// Which file each number is, for the sender.
    sources: BTreeMap<FileNumber, usize>,
    /// For the receiver: which file, the inode that is open, and as which owner.
    open: BTreeMap<FileNumber, (usize, u64, u64)>,
}

pub struct World {
    chance: Pcg64,
    rules: Rules,
    is_handed_over: bool,
    sources: Vec<Source>,
    stored: Vec<Stored>,
    inodes: BTreeMap<u64, Vec<u8>>,
    synced: BTreeMap<u64, Vec<u8>>,
    next_inode: u64,
    sessions: Vec<Session>,
    next_session: u64,
    denied: usize,
    pub verdict: Verdict,
}

impl World {
    pub fn new(seed: u64, rules: Rules) -> World {
        let mut world = World::empty(seed, rules);
        for _ in 0..2 {
            let size = [0, 1, 700, 1024, 3000, 6 * 1024, 9000][world.below(7) as usize];
            world.add(size);
        }
        world
    }

    /// The receiver copies from the sources themselves.
    pub fn handed_over(seed: u64, rules: Rules) -> World {
        World { is_handed_over: true, ..World::new(seed, rules) }
    }

    /// Many small files, every other one of which cannot be stored.
    pub fn crowded(seed: u64, rules: Rules) -> World {
        let mut world = World::empty(seed, rules);
        world.denied = 2;
        (0..20).for_each(|_| world.add(1000));
        world
    }

    fn add(&mut self, size: usize) {
        let content = self.random(size);
        self.sources.push(Source { versions: vec![content.clone()], content, changes: 0 });
        self.stored.push(Stored::default());
    }

    fn empty(seed: u64, rules: Rules) -> World {
        World {
            chance: Pcg64::seed_from_u64(seed),
            rules,
            is_handed_over: false,
            sources: Vec::new(),
            stored: Vec::new(),
            inodes: BTreeMap::new(),
            synced: BTreeMap::new(),
            next_inode: 1,
            sessions: Vec::new(),
            next_session: 1,
            denied: 0,
            verdict: Verdict::default(),
        }
    }

    /// Whether the store refuses a file.
    fn is_denied(&self, file: usize) -> bool {
        self.denied > 0 && file.is_multiple_of(self.denied)
    }

    /// A run: sessions under faults, then one without.
    pub fn run(mut self, faults: Faults) -> Verdict {
        for _ in 0..4 {
            self.begin();
            for _ in 0..200 + self.below(400) {
                self.fault(faults);
                if self.sessions.is_empty() {
                    self.begin();
                }
                self.step(faults.flip);
            }
        }
        // The user types the line again, when nobody else does anything.
        self.sessions.clear();
        for _ in 0..3 {
            self.begin();
            for _ in 0..20_000 {
                if !self.step(0) || self.sessions[0].is_over() {
                    break;
                }
            }
            if !self.sessions[0].is_over() {
                self.verdict.is_stuck = true;
                if std::env::var_os("VERBENA_SHOW").is_some() {
                    eprintln!("{:#?}", self.sessions[0]);
                }
            }
            self.sessions.clear();
        }
        let all_there = (0..self.sources.len())
            .filter(|file| !self.is_denied(*file))
            .all(|file| self.standing(file) == Some(&self.sources[file].content));
        self.verdict.is_stuck |= !all_there;
        self.verdict
    }

    fn below(&mut self, bound: usize) -> u64 {
        self.chance.next_u64() % bound as u64
    }

    fn random(&mut self, size: usize) -> Vec<u8> {
        (0..size).map(|_| self.chance.next_u64() as u8).collect()
    }

    fn standing(&self, file: usize) -> Option<&Vec<u8>> {
        self.stored[file].target.and_then(|inode| self.inodes.get(&inode))
    }

    fn fault(&mut self, faults: Faults) {
        if self.below(1000) < faults.kill
            && let Some(session) = self.sessions.last_mut()
        {
            session.sender = None;
            session.sender_work.clear();
        }
        if self.below(1000) < faults.power {
            self.sessions.clear();
            let inodes: Vec<u64> = self.inodes.keys().copied().collect();
            for inode in inodes {
                let synced = self.synced.get(&inode).cloned().unwrap_or_default();
                let is_target = self.stored.iter().any(|stored| stored.target == Some(inode));
                let count = self.inodes[&inode].len().div_ceil(CHUNK as usize);
                for chunk in 0..count {
                    // What is in place was synced before.
                    if !is_target && self.below(2) == 0 {
                        let Some(content) = self.inodes.get_mut(&inode) else { continue };
                        let end = content.len().min((chunk + 1) * CHUNK as usize);
                        let begin = chunk * CHUNK as usize;
                        for (at, byte) in content[begin..end].iter_mut().enumerate() {
                            *byte = synced.get(begin + at).copied().unwrap_or(0);
                        }
                    }
                }
            }
        }
        if self.below(1000) < faults.lanes {
            let (first, count) = (self.below(STREAMS) as u16, 1 + self.below(STREAMS) as u16);
            let sender = self.sessions.last_mut().and_then(|session| session.sender.as_mut());
            if let Some(sender) = sender {
                sender.use_lanes(Lanes { first, count });
            }
            if let Some(session) = self.sessions.last_mut() {
                session.collect(&mut self.verdict);
            }
        }
        if self.below(1000) < faults.change {
            let file = self.below(2) as usize;
            if self.sources[file].changes < 6 {
                self.change(file);
            }
        }
        // The client is there again; blocks of the one that was killed are still under way.
        if self.sessions.last().is_none_or(|session| session.sender.is_none()) && self.below(20) == 0 {
            self.begin();
        }
        if self.sessions.len() > 3 {
            self.sessions.remove(0);
        }
    }

    fn change(&mut self, file: usize) {
        let size = self.sources[file].content.len();
        let kind = self.below(6);
        if kind == 0 {
            let more = self.random(1500);
            self.sources[file].content.extend(more);
        } else if kind == 1 {
            self.sources[file].content.truncate(size / 2);
        } else if size > 0 {
            let at = self.below(size) as usize;
            self.sources[file].content[at] ^= 0x55;
        }
        self.sources[file].changes += 1;
        let content = self.sources[file].content.clone();
        self.sources[file].versions.push(content);
    }

    fn begin(&mut self) {
        let mut settings = SessionSettings::new(self.next_session, STREAMS as u16);
        settings.chunk_bytes = CHUNK;
        settings.window = 4 * CHUNK;
        settings.buffers = 3;
        settings.small = 1500;
        settings.record_every = 2;
        settings.rules = self.rules;
        settings.is_handed_over = self.is_handed_over;
        self.next_session += 1;
        let mut sender = Sender::new(settings);
        let mut sources = BTreeMap::new();
        for file in 0..self.sources.len() {
            let path = file.to_string().into_bytes();
            let number = sender.add(Entry { path, kind: EntryKind::File, mode: 0o644 });
            sources.insert(number, file);
        }
        sender.all_added();
        let mut receiver = Receiver::without_streams(settings);
        receiver.joined(0);
        let mut session = Session {
            number: settings.session,
            sender: Some(sender),
            receiver: Some(receiver),
            to_receiver: vec![VecDeque::new(); STREAMS],
            to_sender: vec![VecDeque::new(); STREAMS],
            to_join: (1..STREAMS as u16).collect(),
            sender_work: Vec::new(),
            receiver_work: Vec::new(),
            sources,
            open: BTreeMap::new(),
        };
        session.collect(&mut self.verdict);
        self.sessions.push(session);
    }

    /// One thing that can happen, happens. False if nothing can.
    fn step(&mut self, flip: u64) -> bool {
        let mut choices = Vec::new();
        for (index, session) in self.sessions.iter().enumerate() {
            for stream in 0..STREAMS {
                if !session.to_receiver[stream].is_empty() {
                    choices.push((index, 0, stream));
                }
                if !session.to_sender[stream].is_empty() && session.sender.is_some() {
                    choices.push((index, 1, stream));
                }
            }
            choices.extend((0..session.sender_work.len()).map(|work| (index, 2, work)));
            choices.extend((0..session.receiver_work.len()).map(|work| (index, 3, work)));
            choices.extend((0..session.to_join.len()).map(|joining| (index, 4, joining)));
        }
        if choices.is_empty() {
            return false;
        }
        let (index, kind, which) = choices[self.below(choices.len()) as usize];
        let is_flipped = flip > 0 && self.below(1000) < flip;
        let bit = self.chance.next_u64() as usize;
        let mut session = self.sessions.remove(index);
        match kind {
            0 => {
                let (frame, mut data) = session.to_receiver[which].pop_front().unwrap();
                if is_flipped && !data.is_empty() {
                    let length = data.len();
                    data[bit % length] ^= 1;
                }
                if let Some(receiver) = &mut session.receiver {
                    receiver.frame(which as u16, frame, data);
                }
            }
            1 => {
                let frame = session.to_sender[which].pop_front().unwrap();
                if let Some(sender) = &mut session.sender {
                    sender.frame(which as u16, frame);
                }
            }
            2 => {
                let work = session.sender_work.remove(which);
                self.send_work(&mut session, work);
            }
            3 => {
                let work = session.receiver_work.remove(which);
                self.receive_work(&mut session, work);
            }
            _ => {
                let stream = session.to_join.remove(which);
                if let Some(receiver) = &mut session.receiver {
                    receiver.joined(stream);
                }
            }
        }
        session.collect(&mut self.verdict);
        self.sessions.insert(index, session);
        true
    }

    fn look(&self, file: usize) -> Look {
        let Source { content, changes, .. } = &self.sources[file];
        let changed = (i64::from(*changes), 0);
        let identity = Identity { size: content.len() as u64, modified: changed, changed, inode: 1, device: 1 };
        Look { identity, is_young: false }
    }

    fn send_work(&mut self, session: &mut Session, work: SenderAction) {
        let Some(sender) = &mut session.sender else { return };
        match work {
            SenderAction::Open(file) => sender.opened(file, Ok(self.look(session.sources[&file]))),
            SenderAction::Look(file) => sender.looked(file, Ok(self.look(session.sources[&file]))),
            SenderAction::Read { file, chunk, length, is_whole_file } => {
                let content = &self.sources[session.sources[&file]].content;
                let from = (chunk * CHUNK) as usize;
                let bytes = content.get(from..content.len().min(from + length as usize)).unwrap_or_default().to_vec();
                let hash = chunk_hash(&bytes, chunk * CHUNK, is_whole_file);
                sender.read(file, chunk, Ok((bytes, hash)));
            }
            _ => {}
        }
    }

    fn receive_work(&mut self, session: &mut Session, work: ReceiverAction) {
        let Some(receiver) = &mut session.receiver else { return };
        match work {
            ReceiverAction::Prepare { file, entry, .. } => {
                let which: usize = std::str::from_utf8(&entry.path).unwrap().parse().unwrap();
                if self.is_denied(which) {
                    return receiver.prepared(file, Err(Failure::Target("denied".into())));
                }
                let (inode, basis) = self.prepare(which);
                session.open.insert(file, (which, inode, self.stored[which].owner));
                receiver.prepared(file, Ok(basis));
            }
            ReceiverAction::Verify { file, chunk, length, is_whole_file } => {
                let (_, inode, _) = session.open[&file];
                let content = self.inodes.get(&inode).cloned().unwrap_or_default();
                let from = (chunk * CHUNK) as usize;
                let bytes = content.get(from..from + length as usize);
                receiver.verified(file, chunk, bytes.map(|bytes| chunk_hash(bytes, chunk * CHUNK, is_whole_file)));
            }
            ReceiverAction::Clone(file) => {
                let (which, old, _) = session.open[&file];
                let stored = &mut self.stored[which];
                stored.owner += 1;
                stored.claims.clear();
                let inode = self.next_inode;
                self.next_inode += 1;
                stored.part = Some(inode);
                session.open.insert(file, (which, inode, stored.owner));
                let content = self.inodes.get(&old).cloned().unwrap_or_default();
                self.inodes.insert(inode, content);
                receiver.cloned(file, Ok(()));
            }
            ReceiverAction::Write { file, chunk, offset, is_whole_file, data } => {
                let (which, inode, owner) = session.open[&file];
                if self.rules.owner && self.stored[which].owner != owner {
                    return receiver.written(file, chunk, Err(Failure::TakenOver));
                }
                let content = self.inodes.entry(inode).or_default();
                let end = offset as usize + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[offset as usize..end].copy_from_slice(&data);
                receiver.written(file, chunk, Ok(chunk_hash(&data, offset, is_whole_file)));
                self.check(which);
            }
            ReceiverAction::Copy { file, chunk, offset, length, is_whole_file } => {
                let (which, inode, owner) = session.open[&file];
                if self.rules.owner && self.stored[which].owner != owner {
                    return receiver.copied(file, chunk, Err(Failure::TakenOver));
                }
                let source = &self.sources[which].content;
                let (from, end) = ((offset as usize).min(source.len()), source.len().min((offset + length) as usize));
                let data = source[from..end].to_vec();
                let content = self.inodes.entry(inode).or_default();
                if content.len() < offset as usize + data.len() {
                    content.resize(offset as usize + data.len(), 0);
                }
                content[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                let is_all = data.len() as u64 == length;
                receiver.copied(file, chunk, Ok(is_all.then(|| chunk_hash(&data, offset, is_whole_file))));
                self.check(which);
            }
            ReceiverAction::Record { file, hashes, .. } => {
                let Some((which, inode, owner)) = session.open.get(&file).copied() else { return };
                let stored = &mut self.stored[which];
                if stored.part == Some(inode) && (stored.owner == owner || !self.rules.owner) {
                    let claims = hashes.iter().enumerate().filter_map(|(at, hash)| Some((at as u64, (*hash)?)));
                    stored.claims = claims.collect();
                }
            }
            ReceiverAction::Publish { file, identity } => {
                let (which, inode, owner) = session.open[&file];
                let stored = &mut self.stored[which];
                if self.rules.owner && stored.owner != owner {
                    return receiver.published(file, Err(Failure::TakenOver));
                }
                if stored.target != Some(inode) {
                    let content = self.inodes.entry(inode).or_default();
                    content.resize(identity.size as usize, 0);
                    self.synced.insert(inode, content.clone());
                    stored.target = Some(inode);
                    stored.part = None;
                    stored.claims.clear();
                }
                receiver.published(file, Ok(()));
                self.verdict.stored += 1;
                self.check(which);
            }
            _ => {}
        }
    }

    /// What the file is written into, and its inode.
    fn prepare(&mut self, which: usize) -> (u64, Basis) {
        let stored = &mut self.stored[which];
        if let Some(inode) = stored.part {
            stored.owner += 1;
            return (inode, Basis::Part(stored.claims.clone()));
        }
        if let Some(inode) = stored.target {
            return (inode, Basis::Target(self.inodes[&inode].len() as u64));
        }
        stored.owner += 1;
        stored.claims.clear();
        let inode = self.next_inode;
        self.next_inode += 1;
        stored.part = Some(inode);
        self.inodes.insert(inode, Vec::new());
        (inode, Basis::Part(Vec::new()))
    }

    fn check(&mut self, which: usize) {
        if let Some(content) = self.standing(which)
            && !self.sources[which].versions.contains(content)
        {
            self.verdict.wrong += 1;
        }
    }
}

impl Session {
    fn is_over(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_finished)
            && self.sender.as_ref().is_none_or(Sender::is_finished)
    }

    /// Puts what the machines want on its way.
    fn collect(&mut self, verdict: &mut Verdict) {
        if let Some(sender) = &mut self.sender {
            for action in sender.actions() {
                match action {
                    SenderAction::Send { stream, frame, data } => {
                        verdict.sent += data.len() as u64;
                        self.to_receiver[usize::from(stream)].push_back((frame, data));
                    }
                    SenderAction::Settled { .. } | SenderAction::Close(_) | SenderAction::Finished => {}
                    work => self.sender_work.push(work),
                }
            }
        }
        if let Some(receiver) = &mut self.receiver {
            for action in receiver.actions() {
                match action {
                    ReceiverAction::Send { stream, frame } => self.to_sender[usize::from(stream)].push_back(frame),
                    ReceiverAction::Settled { result: Err(Failure::Damaged), .. } => verdict.damaged += 1,
                    ReceiverAction::Violation(what) => panic!("session {}: {what}", self.number),
                    ReceiverAction::Settled { .. } | ReceiverAction::Close(_) | ReceiverAction::Finished => {}
                    work => self.receiver_work.push(work),
                }
            }
        }
    }
}
