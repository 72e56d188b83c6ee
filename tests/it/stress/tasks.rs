//! What a thread has under way, and how it may wait for that.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use onesided::fabric::block_on;
use onesided::{Messages, Tag};

use crate::collectives::steps::Random;

/// Awaits a request, or drops it at its `Pending` of this number.
pub(super) async fn until<T>(request: impl Future<Output = T>, mut pendings: u64) -> Option<T> {
    let mut request = pin!(request);
    poll_fn(move |cx| match request.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if pendings == 0 => Poll::Ready(None),
        Poll::Pending => {
            pendings -= 1;
            Poll::Pending
        }
    })
    .await
}

struct Task<'a, W> {
    what: W,
    call: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<Woken>,
}

/// Whether a task was woken, and its thread.
struct Woken(AtomicBool, Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        self.1.unpark();
    }
}

pub(super) struct Tasks<'a, W>(Vec<Task<'a, W>>);

impl<W> Default for Tasks<'_, W> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a, W> Tasks<'a, W> {
    /// Polls it once.
    pub(super) fn begin(&mut self, what: W, call: impl Future<Output = ()> + 'a) {
        let woken = Arc::new(Woken(AtomicBool::new(true), std::thread::current()));
        let mut call: Pin<Box<dyn Future<Output = ()> + 'a>> = Box::pin(call);
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.0.push(Task { what, call, woken });
        }
    }

    pub(super) fn count(&self, is: impl Fn(&W) -> bool) -> usize {
        self.0.iter().filter(|task| is(&task.what)).count()
    }

    /// Waits until some of them have ended, or the time has passed; or polls one of them, if this need not
    /// last. Returns whether some have.
    pub(super) fn wait(&mut self, messages: &Messages, random: &mut Random, time: Duration) -> bool {
        let (tasks, begun) = (&mut self.0, Instant::now());
        let many = tasks.len();
        if tasks.is_empty() {
            return true;
        }
        tasks.rotate_left(random.below(many as u64) as usize);
        match random.below(2) {
            _ if time.is_zero() => {
                let mut first = true;
                tasks.retain_mut(|task| {
                    !std::mem::take(&mut first)
                        || task.call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
                });
            }
            0 => {
                let never = messages.recv::<u8>(messages.world().rank(), Tag(9)).deadline(time);
                let mut never = pin!(never);
                block_on(
                    messages.world().fabric(),
                    poll_fn(|cx| {
                        tasks.retain_mut(|task| task.call.as_mut().poll(cx).is_pending());
                        if tasks.len() < many { Poll::Ready(()) } else { never.as_mut().poll(cx).map(drop) }
                    }),
                );
            }
            // As a runtime, which polls only what is woken.
            _ => {
                tasks.iter().for_each(|task| task.woken.0.store(true, SeqCst));
                while tasks.len() == many && begun.elapsed() <= time {
                    tasks.retain_mut(|task| {
                        let waker = Waker::from(Arc::clone(&task.woken));
                        !task.woken.0.swap(false, SeqCst)
                            || task.call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
                    });
                    if tasks.len() == many {
                        std::thread::park_timeout(time.saturating_sub(begun.elapsed()));
                    }
                }
            }
        }
        tasks.len() < many
    }
}
