// Package table is the configuration as data, and says where a key goes.
package table
