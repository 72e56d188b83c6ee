//! What the machine itself can do: [`bare`] instructions, bare [`locks`], [`signals`] between two
//! processes, and messages between two [`ends`].

pub(crate) mod bare;
pub(crate) mod ends;
pub(crate) mod locks;
pub(crate) mod signals;
