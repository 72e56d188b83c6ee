//! What the machine itself can do: [`bare`] instructions, bare [`locks`], and [`signals`] between
//! two processes.

pub(crate) mod bare;
pub(crate) mod locks;
pub(crate) mod signals;
