// Package canonical encodes the bodies of events and effects canonically, and hashes a run by
// these encodings. Two runs are the same if their hashes are.
//
// Contract: equal bodies have equal encodings in every process of one build; bodies of one type
// that differ have different ones. An empty list or map counts as an absent one, as in protobuf.
// An encoding is not stored and never decoded.
//
// Start reading at Hash.Step, then Encoder.Encode.
package canonical
