package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestUnitRestartsAfterCrash checks that the systemd unit restarts Ringside after every exit
// status but those of a wrong command line and a wrong configuration, and that neither is a
// status with which the Go runtime ends a process that crashed.
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
