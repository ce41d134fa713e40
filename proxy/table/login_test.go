package table

import "testing"

// TestRefusalHidesThePassword checks the text about a server that sends the login back.
func TestRefusalHidesThePassword(t *testing.T) {
	got := Login{User: "app", Password: "s3cret"}.Refusal("CLIENT_ERROR app s3cret")
	if want := "it rejects the login of user app: CLIENT_ERROR app …"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
