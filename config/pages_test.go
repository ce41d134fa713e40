package config

// Tests that the configurations in the documentation are valid. A part of a file is completed
// with a listener and the pools that it names.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPagesShowRightFiles(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	block, named := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```"), regexp.MustCompile(`\b(?:pool|gutter): *(\w+)`)
	inline, tried := regexp.MustCompile("`((?:admin|failover|limits|engine|log|guard|tags|buffer|timeouts): \\{[^`]*\\})`"), 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		whole := func(part string) string {
			if strings.HasPrefix(part, "  - ") {
				part = "routes:\n" + part
			}
			if !regexp.MustCompile(`(?m)^listen:`).MatchString(part) {
				part = "listen: 127.0.0.1:1\n" + part
			}
			if !regexp.MustCompile(`(?m)^pools:`).MatchString(part) {
				part += "\npools:\n  other: {distribution: ketama-points, servers: [d]}\n"
				seen := map[string]bool{"other": true}
				for _, m := range named.FindAllStringSubmatch(part, -1) {
					if name := m[1]; !seen[name] {
						seen[name] = true
						part += fmt.Sprintf("  %s: {distribution: ketama-points, servers: [%s1, %s2, %s3]}\n", name, name, name, name)
					}
				}
				if !regexp.MustCompile(`(?m)^routes:`).MatchString(part) {
					part += "routes: [{pool: other}]\n"
				}
			}
			return part
		}
		try := func(shown, file string) {
			tried++
			f, err := Parse(filepath.Base(page), []byte(file))
			if err == nil {
				_, err = f.Build()
			}
			if err != nil {
				t.Errorf("%s shows\n%s\n%v", page, shown, err)
			}
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "# nutcracker.yml\n") {
				try(m[1], whole(m[1]))
			}
		}
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			switch word, _, _ := strings.Cut(m[1], ":"); word {
			case "failover", "timeouts":
				try(m[1], "listen: 127.0.0.1:1\npools: {other: {distribution: ketama-points, servers: [a, b, c], "+m[1]+"}, POOL: {distribution: ketama, servers: [d]}}\nroutes: [{pool: other}]\n")
			case "guard", "tags", "buffer":
				try(m[1], "listen: 127.0.0.1:1\npools: {other: {distribution: ketama-points, servers: [a, b, c]}}\nroutes: [{pool: other, "+m[1]+"}]\n")
			default:
				try(m[1], whole(m[1]))
			}
		}
	}
	if tried < 10 {
		t.Errorf("only %d parts of files were found", tried)
	}
	t.Logf("%d parts of files", tried)
}
