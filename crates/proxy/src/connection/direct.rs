//! Reads and writes around [`DirectHits`], beneath hyper.

use std::cell::RefCell;

use super::*;
use crate::direct::head::Memory;
use crate::direct::written::PIECES;
use crate::direct::{DirectHits, Stage, Turn};

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

impl<S: Carrier> Connection<S> {
    /// Answers hits beneath hyper from now on.
    pub fn answers_hits(&mut self, hits: DirectHits) {
        self.hits = Some(Box::new(hits));
    }

    /// Answers hits, and is ready when there is something for hyper.
    pub(super) fn poll_hits(
        &mut self,
        hits: &mut DirectHits,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let read = MEMORY.with_borrow_mut(|memory| self.poll_stages(hits, memory, context, buffer));
        self.talk.is_ahead.store(hits.is_busy(), Ordering::Relaxed);
        self.heard |= hits.kept() > 0;
        read
    }

    fn poll_stages(
        &mut self,
        hits: &mut DirectHits,
        memory: &mut Memory,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let mut gives_way = false;
        loop {
            ready!(self.poll_output(hits, context))?;
            if gives_way {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let is_ending = self.talk.is_ending.load(Ordering::Relaxed);
            let kept = hits.kept();
            let turn = match hits.stage() {
                Stage::Resting if is_ending => {
                    hits.passes();
                    continue;
                }
                Stage::Resting if kept > 0 => match hits.goes_on(memory) {
                    // The answers go out before hyper sees the end of the client's half.
                    Turn::Wants if hits.output().is_none() => ready!(self.poll_came(hits, memory, context, buffer))?,
                    turn => Some(turn),
                },
                Stage::Resting => ready!(self.poll_came(hits, memory, context, buffer))?,
                Stage::Looking(..) => {
                    ready!(hits.poll_look(context, is_ending, memory));
                    Some(Turn::Went)
                }
                Stage::Handing(0) => {
                    *hits.stage() = Stage::Handed;
                    Some(Turn::Went)
                }
                Stage::Handing(left) => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let handed = ready!(self.poll_hand(hits, most, context, buffer))?;
                    if let Stage::Handing(left) = hits.stage() {
                        *left -= handed as u64;
                    }
                    return Poll::Ready(Ok(()));
                }
                // Hyper reads ahead when it has written the last of an answer, and flushes it after that.
                Stage::Handed if self.talk.is_asked.load(Ordering::Relaxed) => {
                    if self.talk.answering.load(Ordering::Relaxed) {
                        self.talk.is_held.store(true, Ordering::Relaxed);
                        return Poll::Pending;
                    }
                    *hits.stage() = Stage::Resting;
                    Some(Turn::Went)
                }
                Stage::Handed | Stage::Passing => {
                    hits.passes();
                    return self.poll_hand(hits, usize::MAX, context, buffer).map_ok(drop);
                }
            };
            match turn {
                None => return Poll::Ready(Ok(())),
                Some(Turn::GivesWay) => gives_way = true,
                Some(Turn::Went | Turn::Wants) => {}
            }
            if matches!(hits.stage(), Stage::Handing(_)) {
                self.talk.is_asked.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Reads, through hyper's own buffer, and answers what came. `None` if nothing comes any more.
    fn poll_came(
        &mut self,
        hits: &mut DirectHits,
        memory: &mut Memory,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<Option<Turn>>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = &buffer.filled()[before..];
        if came.is_empty() {
            if hits.kept() == 0 {
                return Poll::Ready(Ok(None));
            }
            // Hyper says what half a head is answered with.
            hits.passes();
            return Poll::Ready(Ok(Some(Turn::Went)));
        }
        let turn = hits.came(came, memory);
        buffer.set_filled(before);
        Poll::Ready(Ok(Some(turn)))
    }

    /// Gives hyper at most `most` bytes: those that were kept, then those that arrive.
    fn poll_hand(
        &mut self,
        hits: &mut DirectHits,
        most: usize,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<usize>> {
        let room = buffer.remaining();
        if hits.kept() > 0 {
            let bytes = hits.take(most.min(room));
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        if room <= most {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            return Poll::Ready(Ok(room - buffer.remaining()));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(read))
    }

    /// Writes what was answered. Afterwards the next head is waited for.
    fn poll_output(&mut self, hits: &mut DirectHits, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(output) = hits.output() else { return Poll::Ready(Ok(())) };
        let mut has_waited = self.stall.is_some();
        loop {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let used = output.slices(&mut slices);
            if used == 0 {
                break;
            }
            let written = Pin::new(&mut self.stream).poll_write_vectored(context, &slices[..used]);
            let written = match self.judge(written, context) {
                Poll::Ready(Ok(0)) => Err(ErrorKind::WriteZero.into()),
                Poll::Ready(written) => written,
                Poll::Pending => return Poll::Pending,
            };
            match written {
                Ok(written) if output.advance(written) => break,
                Ok(_) => has_waited = true,
                Err(error) => {
                    *hits.output() = None;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let from = if has_waited { Instant::now() } else { output.began };
        *hits.output() = None;
        self.heard = false;
        self.head_until = from + self.patience;
        self.talk.uploads.store(false, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl Talk {
    /// The connection is to end: nothing more is answered beneath hyper.
    pub fn ends(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether something is being answered that hyper knows nothing of.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Relaxed)
    }
}
