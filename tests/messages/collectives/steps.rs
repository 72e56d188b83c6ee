//! Random collectives, and what they should give. Every rank draws the same ones.

use std::ops::Range;
use std::time::Duration;

use onesided_fabric::Fabric;
use onesided_two_sided::{Collective, CollectiveRequest, Commutative, Error, InPlace, Messages, Op};

/// A generator of splitmix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

/// All of them.
pub(crate) const ALL: [Collective; 16] = [
    Collective::Barrier,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::AllReduce,
    Collective::Gather,
    Collective::GatherV,
    Collective::Scatter,
    Collective::ScatterV,
    Collective::AllGather,
    Collective::AllGatherV,
    Collective::AllToAll,
    Collective::AllToAllV,
    Collective::ReduceScatter,
    Collective::ReduceScatterV,
    Collective::Scan,
    Collective::ExclusiveScan,
];

/// An affine map modulo 2<sup>32</sup>: the order of several makes a difference.
pub(crate) type Map = [u32; 2];

pub(crate) fn then(first: Map, second: Map) -> Map {
    [first[0].wrapping_mul(second[0]), second[0].wrapping_mul(first[1]).wrapping_add(second[1])]
}

/// A collective with its arguments, but for the elements.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) collective: Collective,
    pub(crate) len: usize,
    counts: Vec<usize>,
    pub(crate) root: u32,
    how: u64,
    seed: u64,
    /// The deadline of its request.
    pub(crate) deadline: Option<Duration>,
}

/// A prime number of elements repeats, so that a block out of its place is seen; unoptimised code draws them slowly.
pub(crate) fn repeated<T: Copy>(count: usize, of: impl FnMut(usize) -> T) -> Vec<T> {
    const PERIOD: usize = 1_021;
    let mut all = (0..count.min(PERIOD)).map(of).collect::<Vec<_>>().repeat(count.div_ceil(PERIOD));
    all.truncate(count);
    all
}

impl Step {
    pub(crate) fn random(collective: Collective, size: u32, longest: usize, random: &mut Random) -> Self {
        // As many short ones as long ones.
        let mut len = || match random.below(4) {
            0 => random.below(4) as usize,
            1 => random.below(64) as usize,
            2 => random.below(1 + longest as u64 / 16) as usize,
            _ => random.below(1 + longest as u64) as usize,
        };
        let (len, counts) = (len(), (0..size).map(|_| len() / size as usize).collect());
        let (root, how, seed) = (random.below(size.into()) as u32, random.below(4), random.below(1 << 40));
        Self { collective, len, counts, root, how, seed, deadline: None }
    }

    /// An element of a rank.
    fn element(&self, rank: u32, at: usize) -> u32 {
        let mut random = Random(self.seed ^ u64::from(rank) << 48 ^ (at as u64) << 20);
        random.below(1 << 32) as u32
    }

    fn elements(&self, rank: u32, count: usize) -> Vec<u32> {
        repeated(count, |at| self.element(rank, at))
    }

    fn map(&self, rank: u32, at: usize) -> Map {
        [self.element(rank, 2 * at) | 1, self.element(rank, 2 * at + 1)]
    }

    /// The maps of some ranks, one after the other.
    fn combined(&self, ranks: Range<u32>, count: usize) -> Vec<Map> {
        repeated(count, |at| ranks.clone().map(|rank| self.map(rank, at)).reduce(then).unwrap())
    }

    /// The sums of some ranks' elements.
    fn sums(&self, ranks: Range<u32>, count: usize) -> Vec<u32> {
        repeated(count, |at| ranks.clone().map(|rank| self.element(rank, at)).fold(0, u32::wrapping_add))
    }

    /// Some ranks start it in the background.
    fn begun<'m, F: Fabric>(
        &self,
        messages: &Messages<F>,
        request: CollectiveRequest<'m, F>,
    ) -> CollectiveRequest<'m, F> {
        let request = if let Some(after) = self.deadline { request.deadline(after) } else { request };
        match (self.seed ^ u64::from(messages.world().rank())).is_multiple_of(3) {
            true => request.start(),
            false => request,
        }
    }

    /// Runs it, and compares.
    pub(crate) async fn run<F: Fabric>(&self, messages: &Messages<F>) -> Result<(), Error> {
        let (me, size) = (messages.world().rank(), messages.world().size());
        let Self { len, root, counts, .. } = self;
        let (len, root, total, is_root) = (*len, *root, counts.iter().sum::<usize>(), me == *root);
        let (at_root, in_place) = (|len: usize| if is_root { len } else { 0 }, self.how % 2 == 1);
        let count = counts[me as usize];
        let start = |rank: u32| counts[..rank as usize].iter().sum::<usize>();
        let of_counts = |from: u32| self.elements(from, counts[from as usize]);
        match self.collective {
            Collective::Barrier => self.begun(messages, messages.barrier()).await?,
            Collective::Broadcast => {
                let mut data = if is_root { self.elements(root, len) } else { vec![7; len] };
                self.begun(messages, messages.broadcast(&mut data, root)).await?;
                assert_eq!(data, self.elements(root, len), "{self:?}");
            }
            Collective::Reduce | Collective::AllReduce | Collective::Scan | Collective::ExclusiveScan => {
                self.reduction(messages).await?;
            }
            Collective::Gather => {
                let (mine, expected) = (self.elements(me, len), (0..size).map(|rank| self.elements(rank, len)));
                let mut all = vec![7; at_root(len * size as usize)];
                match is_root && in_place {
                    true => {
                        all[len * root as usize..][..len].copy_from_slice(&mine);
                        self.begun(messages, messages.gather(InPlace, &mut all, root)).await?;
                    }
                    false => self.begun(messages, messages.gather(&mine, &mut all, root)).await?,
                }
                assert!(!is_root || all == expected.collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::GatherV => {
                let mut all = vec![7; at_root(total)];
                let mine = of_counts(me);
                match is_root && in_place {
                    true => {
                        all[start(root)..][..count].copy_from_slice(&mine);
                        self.begun(messages, messages.gather_v(InPlace, &mut all, counts, root)).await?;
                    }
                    false => {
                        self.begun(
                            messages,
                            messages.gather_v(&mine, &mut all, &counts[..at_root(size as usize)], root),
                        )
                        .await?
                    }
                }
                assert!(!is_root || all == (0..size).map(of_counts).collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::Scatter => {
                let (all, mut mine) = (self.elements(root, at_root(len * size as usize)), vec![7; len]);
                match is_root && in_place {
                    true => self.begun(messages, messages.scatter(&all, InPlace, root)).await?,
                    false => {
                        self.begun(messages, messages.scatter(&all, &mut mine, root)).await?;
                        assert_eq!(
                            mine,
                            self.elements(root, len * size as usize)[len * me as usize..][..len],
                            "{self:?}"
                        );
                    }
                }
            }
            Collective::ScatterV => {
                let (all, mut mine) = (self.elements(root, at_root(total)), vec![7; count]);
                match is_root && in_place {
                    true => self.begun(messages, messages.scatter_v(&all, counts, InPlace, root)).await?,
                    false => {
                        self.begun(
                            messages,
                            messages.scatter_v(&all, &counts[..at_root(size as usize)], &mut mine, root),
                        )
                        .await?;
                        assert_eq!(mine, self.elements(root, total)[start(me)..][..count], "{self:?}");
                    }
                }
            }
            Collective::AllGather => {
                let (mine, mut all) = (self.elements(me, len), vec![7; len * size as usize]);
                match in_place {
                    true => {
                        all[len * me as usize..][..len].copy_from_slice(&mine);
                        self.begun(messages, messages.all_gather(InPlace, &mut all)).await?;
                    }
                    false => self.begun(messages, messages.all_gather(&mine, &mut all)).await?,
                }
                assert!(all == (0..size).map(|rank| self.elements(rank, len)).collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::AllGatherV => {
                let (mine, mut all) = (of_counts(me), vec![7; total]);
                match in_place {
                    true => {
                        all[start(me)..][..count].copy_from_slice(&mine);
                        self.begun(messages, messages.all_gather_v(InPlace, &mut all, counts)).await?;
                    }
                    false => self.begun(messages, messages.all_gather_v(&mine, &mut all, counts)).await?,
                }
                assert!(all == (0..size).map(of_counts).collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::AllToAll => {
                let (mine, mut all) = (self.elements(me, len * size as usize), vec![7; len * size as usize]);
                match in_place {
                    true => {
                        all.copy_from_slice(&mine);
                        self.begun(messages, messages.all_to_all(InPlace, &mut all)).await?;
                    }
                    false => self.begun(messages, messages.all_to_all(&mine, &mut all)).await?,
                }
                let block = |from: u32| self.elements(from, len * (me as usize + 1)).split_off(len * me as usize);
                assert!(all == (0..size).map(block).collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::AllToAllV => {
                // To rank r each sends a count that depends on both.
                let many = |from: u32, to: u32| counts[((from + 2 * to) % size) as usize];
                let sends: Vec<_> = (0..size).map(|to| many(me, to)).collect();
                let recvs: Vec<_> = (0..size).map(|from| many(from, me)).collect();
                let mine = self.elements(me, sends.iter().sum());
                let mut all = vec![7; recvs.iter().sum()];
                self.begun(messages, messages.all_to_all_v(&mine, &sends, &mut all, &recvs)).await?;
                let block = |from: u32| {
                    let before: usize = (0..me).map(|to| many(from, to)).sum();
                    self.elements(from, before + many(from, me)).split_off(before)
                };
                assert!(all == (0..size).map(block).collect::<Vec<_>>().concat(), "{self:?}");
            }
            Collective::ReduceScatter => {
                let count = len * size as usize;
                let mine = len * me as usize..len * (me as usize + 1);
                self.reduce_scatter(messages, count, mine, None).await?;
            }
            Collective::ReduceScatterV => {
                let mine = start(me)..start(me) + count;
                self.reduce_scatter(messages, total, mine, Some(counts)).await?;
            }
            other => panic!("{other}"),
        }
        Ok(())
    }

    async fn reduction<F: Fabric>(&self, messages: &Messages<F>) -> Result<(), Error> {
        let (me, size, len) = (messages.world().rank(), messages.world().size(), self.len);
        let ranks = match self.collective {
            Collective::Scan => 0..me + 1,
            Collective::ExclusiveScan => 0..me.max(1),
            _ => 0..size,
        };
        macro_rules! call {
            ($data:expr, $operation:expr) => {
                match self.collective {
                    Collective::Reduce => self.begun(messages, messages.reduce($data, $operation, self.root)).await?,
                    Collective::AllReduce => self.begun(messages, messages.all_reduce($data, $operation)).await?,
                    Collective::Scan => self.begun(messages, messages.scan($data, $operation)).await?,
                    _ => self.begun(messages, messages.exclusive_scan($data, $operation)).await?,
                }
            };
        }
        let matters = self.collective != Collective::Reduce || me == self.root;
        if self.how == 0 {
            let mut data = self.combined(me..me + 1, len);
            call!(&mut data, then);
            assert!(!matters || data == self.combined(ranks, len), "{self:?}");
        } else {
            let mut data = self.elements(me, len);
            match self.how {
                1 => call!(&mut data, Op::Sum),
                _ => call!(&mut data, Commutative(u32::wrapping_add)),
            }
            assert!(!matters || data == self.sums(ranks, len), "{self:?}");
        }
        Ok(())
    }

    async fn reduce_scatter<F: Fabric>(
        &self,
        messages: &Messages<F>,
        len: usize,
        mine: Range<usize>,
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let (me, size) = (messages.world().rank(), messages.world().size());
        macro_rules! call {
            ($data:expr, $operation:expr) => {
                match counts {
                    None => self.begun(messages, messages.reduce_scatter($data, $operation)).await?,
                    Some(counts) => self.begun(messages, messages.reduce_scatter_v($data, counts, $operation)).await?,
                }
            };
        }
        if self.how.is_multiple_of(2) {
            let mut data = self.combined(me..me + 1, len);
            call!(&mut data, then);
            assert!(data[mine.clone()] == self.combined(0..size, len)[mine], "{self:?}");
        } else {
            let mut data = self.elements(me, len);
            call!(&mut data, Op::Sum);
            assert!(data[mine.clone()] == self.sums(0..size, len)[mine], "{self:?}");
        }
        Ok(())
    }
}
