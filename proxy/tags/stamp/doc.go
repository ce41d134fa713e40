// Package stamp encodes the tags of a value and checks whether the value is still
// valid.
//
// A tag is a name. Each server that stores values with a tag also stores one empty
// item for the tag. The cas id of that item is the tag's version on that server. A
// value is stored with a head in front, which contains its tags and their versions
// at the time. The value is valid as long as all these versions are unchanged.
//
//	head   magic 1 | its length 2 | the client's flags 4 | count 1 | count × (tag 8, version 8) | crc32c 4
//
// All numbers are big-endian. On the server, a value with a head has the client
// flags Flags.
//
//	__rs_t:ID   a tag: ID is a hash of namespace and name, in base64url
//	__rs_b:N    a bucket of tags: every invalidation of a tag in it rewrites this item, so its cas id increases
//
// A memcached process never assigns a cas id twice. If a tag is lost, evicted or
// deleted, it gets another version when it is created again, so older values stay
// invalid. Two names with the same hash invalidate each other's values. That causes
// extra misses, but no value is served that should be invalid.
package stamp
