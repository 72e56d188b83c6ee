//! A piece of registered memory to be copied, and where it comes from or goes to.

/// The maximum length of one copy, which bounds the wait of an owner that reclaims its memory.
pub(super) const CUT: usize = 4 << 20;

/// Private bytes: the source of a put, or the destination of a get.
pub(super) enum Bytes<'b> {
    From(&'b [u8]),
    Into(&'b mut [u8]),
}

impl Bytes<'_> {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::From(from) => from.len(),
            Self::Into(into) => into.len(),
        }
    }
}

/// A piece of user memory, and its source or destination.
pub(super) struct Piece<'b> {
    pub(super) offset: u64,
    pub(super) bytes: Bytes<'b>,
}

impl<'b> Piece<'b> {
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first bytes, at most `len`.
    pub(super) fn first(&mut self, len: usize) -> Piece<'_> {
        let len = len.min(self.len());
        let bytes = match &mut self.bytes {
            Bytes::From(from) => Bytes::From(&from[..len]),
            Bytes::Into(into) => Bytes::Into(&mut into[..len]),
        };
        Piece { offset: self.offset, bytes }
    }

    /// Takes off the first bytes, at most `len`.
    pub(super) fn split(&mut self, len: usize) -> Self {
        let (offset, len) = (self.offset, len.min(self.len()));
        self.offset += len as u64;
        let bytes = match &mut self.bytes {
            Bytes::From(from) => {
                let (first, rest) = from.split_at(len);
                *from = rest;
                Bytes::From(first)
            }
            Bytes::Into(into) => {
                let (first, rest) = std::mem::take(into).split_at_mut(len);
                *into = rest;
                Bytes::Into(first)
            }
        };
        Self { offset, bytes }
    }
}

/// The rest of some pieces after the first `done` bytes.
pub(super) fn advance<'s, 'b>(pieces: &'s mut [Piece<'b>], mut done: usize) -> &'s mut [Piece<'b>] {
    let mut whole = 0;
    while let Some(piece) = pieces.get(whole).filter(|piece| piece.len() <= done) {
        done -= piece.len();
        whole += 1;
    }
    let rest = &mut pieces[whole..];
    if let [first, ..] = rest {
        first.split(done);
    }
    rest
}
