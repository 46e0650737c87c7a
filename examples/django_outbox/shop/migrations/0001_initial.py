"""The two tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the tables."""

    initial = True
    dependencies: list = []
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(primary_key=True)),
            ("reference", models.CharField(max_length=40, unique=True)),
        ]),
        migrations.CreateModel("Receipt", [
            ("id", models.BigAutoField(primary_key=True)),
            ("reference", models.CharField(max_length=40, unique=True)),
        ]),
    ]
