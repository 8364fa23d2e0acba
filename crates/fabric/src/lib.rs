
//! Memory regions, one-sided operations and messages over one interface, whatever the interconnect.
