// Package upstream pairs requests with replies on connections to memcached servers.
package upstream
