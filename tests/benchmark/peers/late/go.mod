module late

go 1.21
