//! The pieces of a put or get on a shape: offsets in the window memory, and the bytes for each.

use std::ops::Range;

use onesided_layouts::Runs;

use crate::{Element, Fields};

/// The pieces of a put.
#[derive(Clone)]
pub(crate) struct Pieces<'b, T: Element, S: Fields<T>> {
    runs: Runs<'b>,
    /// The offset of the shape in the window memory, in elements, and the rest of the current run.
    offset: usize,
    run: Range<usize>,
    fields: S,
    values: &'b [S::Values],
    parts: Option<S::Parts<'b>>,
}

impl<'b, T: Element, S: Fields<T>> Pieces<'b, T, S> {
    pub(crate) fn new(offset: usize, runs: Runs<'b>, fields: S, values: &'b [S::Values]) -> Self {
        Self { runs, offset, run: 0..0, fields, values, parts: None }
    }
}

impl<'b, T: Element, S: Fields<T>> Iterator for Pieces<'b, T, S> {
    type Item = (u64, &'b [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = self.parts.as_mut().and_then(Iterator::next) {
                return Some(part);
            }
            if self.run.is_empty() {
                let run = self.runs.next()?;
                self.run = self.offset + run.start..self.offset + run.end;
            }
            self.parts = Some(self.fields.cut(&mut self.run, &mut self.values));
        }
    }
}

/// The pieces of a get.
pub(crate) struct PiecesMut<'b, T: Element, S: Fields<T>> {
    runs: Runs<'b>,
    offset: usize,
    run: Range<usize>,
    fields: S,
    values: &'b mut [S::Values],
    parts: Option<S::PartsMut<'b>>,
}

impl<'b, T: Element, S: Fields<T>> PiecesMut<'b, T, S> {
    pub(crate) fn new(offset: usize, runs: Runs<'b>, fields: S, values: &'b mut [S::Values]) -> Self {
        Self { runs, offset, run: 0..0, fields, values, parts: None }
    }
}

impl<'b, T: Element, S: Fields<T>> Iterator for PiecesMut<'b, T, S> {
    type Item = (u64, &'b mut [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(part) = self.parts.as_mut().and_then(Iterator::next) {
                return Some(part);
            }
            if self.run.is_empty() {
                let run = self.runs.next()?;
                self.run = self.offset + run.start..self.offset + run.end;
            }
            self.parts = Some(self.fields.cut_mut(&mut self.run, &mut self.values));
        }
    }
}
