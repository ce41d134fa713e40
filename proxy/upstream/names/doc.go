// Package names knows what the answer to a request must name: its keys, and its opaque.
//
// Order pairs answers with requests. Names tell when the order is wrong, because a server
// lies, or has taken something for another command than Ringside did. Then nobody can say
// whose an answer is, and the connection is aborted (package upstream): to go on would
// hand one client another's value.
//
//	request                    is remembered as              an answer must name
//	get k, mg k, set …         k, and behind it the opaque   the key in a VALUE, and with flag k; the opaque with O
//	gets k1 k2 k3              the length of each key, and   the keys in the order of asking, each as often as it was
//	                           behind these the line         asked for; those that are passed over have missed
//
// The bytes of a request are gone once they are written, so its names are copied. That
// costs every request one copy of its key into room that is used again, and a read of
// many keys one copy of its line, a tenth of copying it key by key.
//
// An answer that names nothing (END, STORED, EN of older servers) can't be checked. This
// package knows no connections and no deadlines, and does not decide what a wrong name
// leads to.
package names
