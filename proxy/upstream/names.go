package upstream

// This file explains Names: what the reply to a request must name, which are its keys and its opaque.
//
// Replies are paired with requests by order. The names show when that order is wrong: the
// server broke the protocol, or has parsed a request differently than Ringside. It is then unknown
// to which request a reply belongs, and the connection is aborted. Otherwise one client could get
// another client's value.
//
//	request                    is stored as                  a reply must name
//	get k, mg k, set …         k, followed by the opaque     the key in a VALUE, and with flag k; the opaque with O
//	gets k1 k2 k3              the length of each key,       the keys in request order, each as often as it was
//	                           followed by the line          requested; skipped keys have missed
//
// The bytes of a request are gone once they are written, so its names are copied. This costs
// each request one copy of its key into a reused buffer. For a read of many keys it is one copy
// of the line, a tenth of the cost of a copy for each key.
//
// A reply that names nothing (END, STORED, EN of older servers) can't be checked. Names does not
// know connections and deadlines, and does not decide how a reply with a wrong name is handled.
