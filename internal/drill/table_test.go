package drill

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
)

func TestDrillTable(t *testing.T) {
	modes := tableModes
	defer func() { tableModes = modes }()
	tableModes = []tableMode{{"quick", "distribution: ketama-points, failover: {eject_after: 100ms, ping: 100ms, lease: 1s}", 3, false}}
	root := &cobra.Command{Use: "ringside"}
	root.AddCommand(Command("test"))
	var out, errs strings.Builder
	code := cli.Run(root, strings.Fields("drill --table --for 4s --rate 300 --clients 8 --keys 64"), nil, &out, &errs)
	if code != 0 || !strings.Contains(out.String(), "| | kill | hang | black hole |") || !strings.Contains(out.String(), "| quick | ") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errs.String())
	}
}
