// Package failover serves keys whose server is out or comes back, and hosts what decides that.
package failover
