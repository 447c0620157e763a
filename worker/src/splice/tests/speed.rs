//! What carrying over costs, beside a plain copy.
