//! Conversions between the wire and the model. They check what the wire cannot say by its types.

