//! A job from its file to its end.
