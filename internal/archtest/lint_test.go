package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestLintHasChecksOfVet compares the analyzers of .ci/lint with those of the installed go vet.
func TestLintHasChecksOfVet(t *testing.T) {
	passes := func(pkg string) (all []string) {
		cmd := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, pkg)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", pkg, err)
		}
		for line := range strings.Lines(string(out)) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), "golang.org/x/tools/go/analysis/passes/"); ok {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	vet, lint := passes("cmd/vet"), passes("./.ci/lint")
	if len(vet) == 0 || !slices.Equal(vet, lint) {
		t.Errorf("go vet has the analyzers %q, .ci/lint has %q: change .ci/lint/main.go", vet, lint)
	}
}
