package proxy_test

// Conversations about the engine as a whole.

import (
	"testing"

	"ringside/proxy/conversation"
)

func TestConversations(t *testing.T) { conversation.Run(t, "testdata/conversations") }
