package replication_test

import (
	"testing"

	"ringside/proxy/conversation"
)

func TestConversations(t *testing.T) { conversation.Run(t, "testdata/conversations") }
