package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestUnitRestartsAfterCrash checks that the systemd unit restarts Ringside after every exit
// status except those of a wrong command line and of a wrong configuration. It also checks
// that no exit status of Ringside is 2, which the Go runtime uses after a crash.
func TestUnitRestartsAfterCrash(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/ringside.service")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(unit), "\nRestartPreventExitStatus=")
	statuses, _, _ := strings.Cut(rest, "\n")
	if want := fmt.Sprint(exitUsage, " ", exitConfig); !found || statuses != want {
		t.Errorf("RestartPreventExitStatus=%s, want %s", statuses, want)
	}
	for _, status := range []int{exitFailed, exitNotUp, exitUsage, exitConfig} {
		if status == 2 {
			t.Error("2 is the exit status of a crash")
		}
	}
}
