// Cas tokens that are worth something only at the member that gave them.

package replicate

// Seal returns the token that a client gets for a cas unique, and Open the cas
// unique to send for a token.
func Seal(cas, identity uint64) uint64 { return cas ^ pad(identity) }

// Open is Seal's inverse under the same identity.
func Open(token, identity uint64) uint64 { return token ^ pad(identity) }

func pad(identity uint64) uint64 {
	z := identity + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) & (1<<52 - 1)
}
