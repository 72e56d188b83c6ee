//! What ends collectives early.
