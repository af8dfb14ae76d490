"""The engine at cluster scale: state kept in O(changes), compacted exactly, solved as one network, certified."""
